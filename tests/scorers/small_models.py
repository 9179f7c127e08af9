"""Small models with random weights, saved as transformers saves any model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

WORDS = (
    "why is the sky blue red green when how do i say it that this a an of to and answer question good bad long short "
    "water light scatters because air more than other colours yes no . , ? ! : user assistant prompt response tell me"
).split()
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "<|end|>")
SEED = 20

# Threads that wait for each other at each of many small operations take ages on a busy machine.
torch.set_num_threads(1)
transformers.utils.logging.disable_progress_bar()


def texts(count: int, longest: int = 60) -> list[str]:
    """Return texts of 1 to ``longest`` words, of mixed lengths."""
    generator = torch.Generator().manual_seed(SEED)
    lengths = torch.randint(1, longest + 1, (count,), generator=generator).tolist()
    return [
        " ".join(WORDS[number] for number in torch.randint(len(WORDS), (length,), generator=generator).tolist())
        for length in lengths
    ]


def word_tokenizer(padding_side: str = "right", **options: Any) -> transformers.PreTrainedTokenizerFast:
    """Return a tokenizer of words and single letters that puts [CLS] and [SEP] around segments, as BERT's does."""
    letters = [chr(number) for number in range(33, 127)]
    pieces = [*SPECIAL, *dict.fromkeys([*WORDS, *letters, *(f"##{letter}" for letter in letters)])]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        padding_side=padding_side,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **options,
    )


def plain_tokenizer(padding_side: str, chat_template: str | None = None) -> transformers.PreTrainedTokenizerFast:
    """Return a tokenizer without marks around texts, for models that read from left to right."""
    tokenizer = word_tokenizer(padding_side)
    tokenizer.backend_tokenizer.post_processor = processors.Sequence([])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|end|>"]})
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    tokenizer.chat_template = chat_template
    return tokenizer


def bert(folder: Path, labels: int = 1, limit: int = 256, padding_side: str = "right", **config: Any) -> Path:
    """Save a BERT with a head and its tokenizer; returns the folder."""
    torch.manual_seed(SEED)
    tokenizer = word_tokenizer(padding_side, model_max_length=limit)
    settings = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=limit,
        num_labels=labels,
        initializer_range=0.3,
        **config,
    )
    transformers.BertForSequenceClassification(settings).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def left_to_right(
    folder: Path, kind: str, padding_side: str, chat_template: str | None = None, padding: bool = True
) -> Path:
    """Save a GPT-2, Qwen2 or XLNet with a head of one output and its tokenizer; returns the folder."""
    torch.manual_seed(SEED)
    tokenizer = plain_tokenizer(padding_side, chat_template)
    common = {
        "vocab_size": len(tokenizer),
        "num_labels": 1,
        "initializer_range": 0.3,
        "pad_token_id": tokenizer.pad_token_id if padding else None,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    model: Any
    if kind == "gpt2":
        model = transformers.GPT2ForSequenceClassification(
            transformers.GPT2Config(n_positions=256, n_embd=32, n_layer=2, n_head=4, **common)
        )
    elif kind == "qwen2":
        model = transformers.Qwen2ForSequenceClassification(
            transformers.Qwen2Config(
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                intermediate_size=64,
                max_position_embeddings=1024,
                **common,
            )
        )
    else:
        model = transformers.XLNetForSequenceClassification(
            transformers.XLNetConfig(d_model=32, n_layer=2, n_head=4, d_inner=64, **common)
        )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def change_config(folder: Path, **values: Any) -> None:
    """Write other settings into ``config.json``."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def plain_outputs(folder: Path, *inputs: tuple[str, ...], **options: Any) -> torch.Tensor:
    """Return ``model(**tokenizer(...))`` for each record by itself, [n, outputs]."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.inference_mode():
        found = [model(**tokenizer(*texts, return_tensors="pt", **options)).logits[0] for texts in inputs]
    return torch.stack(found).float()

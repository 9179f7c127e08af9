"""Packed linear layers give what ``torch.nn.Linear`` gives, and take the place of nothing else."""

from __future__ import annotations

import importlib.util

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

if importlib.util.find_spec("torch") is None:
    pytest.skip("the extra models is not installed", allow_module_level=True)

import torch
from torch import nn

from scorers.packed_linear import PackedLinear, can_pack, pack_linear_layers

needs_operations = pytest.mark.skipif(not can_pack(), reason="this build of PyTorch has no packed linear layers")


@needs_operations
@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.integers(1, 70), min_size=0, max_size=2),
    inputs=st.integers(1, 130),
    outputs=st.integers(1, 130),
    bias=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_the_same_but_for_rounding(rows: list[int], inputs: int, outputs: int, bias: bool, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    linear = nn.Linear(inputs, outputs, bias=bias)
    values = torch.randn(*rows, inputs, generator=generator)
    with torch.inference_mode():
        packed = PackedLinear(linear)
        torch.testing.assert_close(packed(values), linear(values), rtol=1e-5, atol=1e-5)
        # Not contiguous, as attention hands it over.
        turned = torch.randn(inputs, *rows[::-1], 3, generator=generator).movedim(0, -1)
        torch.testing.assert_close(packed(turned), linear(turned), rtol=1e-5, atol=1e-5)
        assert torch.equal(packed.weight, linear.weight)
    assert (packed.in_features, packed.out_features) == (inputs, outputs)


class Doubled(nn.Linear):
    """A layer that is no plain linear one."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(values)


def some_layers() -> nn.Module:
    """A model with a layer in two places, one that is none of the plain ones, and attention of PyTorch's own."""
    shared = nn.Linear(8, 8)
    attention = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.Sequential(shared, nn.Tanh(), nn.Sequential(shared, Doubled(8, 8)), attention, nn.Linear(8, 2))
    return model.eval()


@needs_operations
def test_only_plain_linear_layers_are_replaced() -> None:
    model = some_layers()
    values = torch.randn(5, 7, 8, generator=torch.Generator().manual_seed(3))
    with torch.inference_mode():
        wanted = model(values)
        pack_linear_layers(model)
        torch.testing.assert_close(model(values), wanted, rtol=1e-5, atol=1e-5)
    kinds = [type(module) for module in model.modules()]
    # Two of the encoder layer, the last one, and the one that is in two places, once.
    assert kinds.count(PackedLinear) == 4
    assert kinds.count(nn.Linear) == 0
    assert kinds.count(Doubled) == 1
    assert model.get_submodule("0") is model.get_submodule("2.0")


class Intermediate(nn.Module):
    """The intermediate layer of BERT, or one that looks like it."""

    def __init__(self, act: nn.Module, factor: float = 1.0) -> None:
        super().__init__()
        self.dense, self.intermediate_act_fn, self.factor = nn.Linear(24, 40), act, factor

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.intermediate_act_fn(self.factor * self.dense(values))


@needs_operations
@pytest.mark.parametrize(
    ("layer", "fused"),
    [
        (Intermediate(nn.GELU()), True),
        (Intermediate(nn.GELU("tanh")), False),
        (Intermediate(nn.ReLU()), False),
        (Intermediate(nn.GELU(), factor=0.5), False),
        (nn.Sequential(nn.Linear(24, 40), nn.GELU()), False),
    ],
)
def test_gelu_is_applied_by_the_product_where_it_follows_at_once(layer: nn.Module, fused: bool) -> None:
    values = torch.randn(3, 5, 24, generator=torch.Generator().manual_seed(4))
    with torch.inference_mode():
        wanted = layer(values)
        pack_linear_layers(layer)
        torch.testing.assert_close(layer(values), wanted, rtol=1e-5, atol=1e-5)
    activations = [module.activation for module in layer.modules() if isinstance(module, PackedLinear)]
    assert activations == ["gelu" if fused else "none"]


@needs_operations
def test_gelu_is_fused_in_a_model_of_bert() -> None:
    from transformers import BertConfig, BertModel

    shape = BertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24)
    model = BertModel(shape).eval()
    ids = torch.arange(12).reshape(2, 6)
    with torch.inference_mode():
        wanted = model(ids).last_hidden_state
        pack_linear_layers(model)
        torch.testing.assert_close(model(ids).last_hidden_state, wanted, rtol=1e-5, atol=1e-5)
    activations = [module.activation for module in model.modules() if isinstance(module, PackedLinear)]
    assert activations.count("gelu") == 2
    assert activations.count("none") == len(activations) - 2


def test_a_build_without_the_operations_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    can_pack.cache_clear()
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    try:
        assert not can_pack()
        model = some_layers()
        pack_linear_layers(model)
        assert not any(isinstance(module, PackedLinear) for module in model.modules())
    finally:
        can_pack.cache_clear()


@needs_operations
@pytest.mark.parametrize("error", [False, True])
def test_operations_that_do_something_else_are_not_used(monkeypatch: pytest.MonkeyPatch, error: bool) -> None:
    forward = PackedLinear.forward

    def changed(self: PackedLinear, values: torch.Tensor) -> torch.Tensor:
        if error:
            raise RuntimeError("no such operation")
        return forward(self, values) + 1

    can_pack.cache_clear()
    monkeypatch.setattr(PackedLinear, "forward", changed)
    try:
        assert not can_pack()
    finally:
        can_pack.cache_clear()

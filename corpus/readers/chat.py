"""Turn a chat, a list of ``{role, content}``, into a pair.

The response is the content of the last assistant turn; the prompt is the contents of the turns before it, joined by
blank lines. Turns without content (a tool call) add nothing to the prompt; turns after the response are left out. The
messages stay beside the pair as the user's column.
"""

from __future__ import annotations

from typing import Any

from corpus.readers.faults import RecordFaultError


def pair_of(messages: Any, column: str) -> list[str]:
    """Return [prompt, response] of a chat. Raises RecordFaultError with the reason why it is none."""
    if messages is None:
        raise RecordFaultError("null_text", f"{column} is null; give a list of messages or leave the record out")
    if not isinstance(messages, list):
        raise RecordFaultError("wrong_type", f"{column} is {json_type(messages)}; wanted is a list of messages")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise RecordFaultError("wrong_type", f"{column}[{index}] is no object with a role that is a string")
        content = message.get("content")
        if content is not None and not isinstance(content, str):
            detail = f"{column}[{index}].content is {json_type(content)}; wanted is a string"
            raise RecordFaultError("wrong_type", detail)
    last = max((index for index, message in enumerate(messages) if message["role"] == "assistant"), default=None)
    if last is None:
        detail = f"no message in {column} has the role assistant; leave out chats without an answer"
        raise RecordFaultError("no_assistant_turn", detail)
    response = messages[last].get("content")
    if response is None:
        detail = f"{column}[{last}].content, the last assistant turn, is null; give it a text or leave the record out"
        raise RecordFaultError("null_text", detail)
    return ["\n\n".join(message["content"] for message in messages[:last] if message.get("content")), response]


def json_type(value: Any) -> str:
    """Return how messages speak of a value's JSON type."""
    if isinstance(value, bool):
        return "a boolean"
    names = {int: "a number", float: "a number", str: "a string", list: "a list", dict: "an object"}
    return names.get(type(value), "null")

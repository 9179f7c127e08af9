"""What the clients of object stores say when something fails, as one message with a remedy.

fsspec's clients turn most answers of a store into OSError and its kinds, and keep the store's own code in the text or
in the cause; some errors (no credentials, no connection) come from the libraries below them as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from corpus.errors import ThresherError

CREDENTIALS = {
    "s3": "the AWS_ variables, or a profile in ~/.aws",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or `gcloud auth application-default login`",
    "hf": "HF_TOKEN, or `hf auth login`",
}
_NO_BUCKET = ("bucket does not exist", "nosuchbucket", "bucket not found")
# What the text of an error holds, in lower case, and what that means; the first that fits says it.
_REASONS = (
    (("expired",), "the credentials have expired; renew them ({credentials})"),
    (
        ("invalidaccesskeyid", "does not exist in our records", "signaturedoesnotmatch", "signature we calculated"),
        "the key or its secret is wrong; correct them ({credentials})",
    ),
    (("nocredentials", "unable to locate credentials"), "there are no credentials; give some ({credentials})"),
    (_NO_BUCKET, "the bucket does not exist; correct the name, or create it"),
    (("accessdenied", "access denied", "not authorized"), "the key has no right to do that; grant it"),
    (
        ("permissionerror", "forbidden"),
        "refused: the key is wrong, has expired, or has no right to do that ({credentials})",
    ),
    (
        ("connect", "timeout", "timed out", "resolve"),
        "the store does not answer; check the network and the endpoint (for S3 AWS_ENDPOINT_URL)",
    ),
)


def describe(path: str, doing: str, error: BaseException) -> str:
    """Return a message for an error of a store's client.

    Args:
        path: URI, without secrets.
        doing: what was tried, such as ``cannot be written``.
    """
    scheme = path.split("://", 1)[0]
    credentials = CREDENTIALS.get(scheme, "the environment")
    text = " ".join(f"{type(one).__name__}: {one}" for one in (error, error.__cause__) if one is not None)
    for signs, meaning in _REASONS:
        if any(sign in text.lower() for sign in signs):
            return f"{path}: {doing}: {meaning.format(credentials=credentials)}; the store says: {error}"
    return f"{path}: {doing} ({type(error).__name__}: {error}); check name, network and credentials ({credentials})"


def is_missing_bucket(error: BaseException) -> bool:
    """Say whether what is not there is the bucket itself."""
    return any(sign in str(error).lower() for sign in _NO_BUCKET)


@contextmanager
def store_errors(path: str, doing: str) -> Iterator[None]:
    """Turn what a store's client raises into ThresherError; a file that is not there stays FileNotFoundError."""
    try:
        yield
    except (FileNotFoundError, ThresherError):
        raise
    except Exception as error:  # each store's client has its own exceptions
        raise ThresherError(describe(path, doing, error)) from error

"""Findings of the exact stage as journal entries.

What passed is kept as three facts; what failed is computed again when a run goes on, so that a
counterexample is never read from a file.
"""

import base64
import binascii
from collections.abc import Iterator
from typing import Any

from rheocheck.audit.digests import Digests
from rheocheck.audit.exact_check import Finding, check_instance
from rheocheck.errors import InputError
from rheocheck.reference.families import Instance

_FAILED = 0
_DIGEST_BYTES = 32


def as_entry(finding: Finding) -> Any:
    """A finding as JSON: [classes, eager paths or null, both digests], or 0 if it failed."""
    if finding.failed or finding.digests is None:
        return _FAILED
    digests = base64.b64encode(finding.digests.instance + finding.digests.law).decode("ascii")
    return [finding.num_classes, finding.num_eager_paths, digests]


def recalled(instances: list[Instance], entries: Any, max_eager_paths: int) -> Iterator[Finding]:
    """Findings of instances from their entries; failed ones are computed again.

    Args:
      instances: The instances.
      entries: One entry each, as `as_entry` made it.
      max_eager_paths: As in `check_instance`.

    Yields:
      The findings, in order.

    Raises:
      InputError: An entry is none, or there are more or fewer of them.
    """
    if not isinstance(entries, list) or len(entries) != len(instances):
        raise InputError(
            f"the journal's entry for {len(instances)} instances from {instances[0].name} on is "
            f"damaged"
        )
    for instance, entry in zip(instances, entries, strict=True):
        if entry == _FAILED:
            yield check_instance(instance, max_eager_paths)
        else:
            yield _finding(instance, entry)


def _finding(instance: Instance, entry: Any) -> Finding:
    match entry:
        case [int(num_classes), int() | None as num_eager_paths, str(text)]:
            digests = _decoded(text)
            if len(digests) == 2 * _DIGEST_BYTES:
                return Finding(
                    instance=instance,
                    num_classes=num_classes,
                    num_eager_paths=num_eager_paths,
                    digests=Digests(digests[:_DIGEST_BYTES], digests[_DIGEST_BYTES:]),
                )
    raise InputError(f"the journal's entry for {instance.name} is damaged: {entry!r}")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""

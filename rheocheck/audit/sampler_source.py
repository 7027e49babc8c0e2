"""Samplers by name: imported here and in worker processes, and digested for a run that goes on."""

import functools
import hashlib
import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rheocheck.errors import InputError, RheocheckError
from rheocheck.protocols import Sampler


@dataclass(frozen=True, slots=True)
class SamplerSource:
    """Where a sampler is imported from.

    Attributes:
      spec: "package.module:name", name perhaps dotted (a class attribute).
      folder: Put first on the module path, as pytest's rootdir is.
    """

    spec: str
    folder: str

    @property
    def module(self) -> str:
        """Name of the module."""
        return self.spec.partition(":")[0]

    def load(self) -> Sampler:
        """Import the sampler; nothing is evaluated.

        Returns:
          The object of that name.

        Raises:
          InputError: No colon, no such module or name, an import that raised, or not callable.
        """
        return _load(self)

    def code_digest(self) -> str:
        """Digest of the sampler's source: the modules loaded now that it may have come from.

        They are the files of its own top-level package or module, and those below `folder`; what
        is imported later, or installed elsewhere, does not enter.
        """
        own = self.module.partition(".")[0]
        digest = hashlib.sha256()
        for name, module in sorted(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if not isinstance(file, str) or not file.endswith(".py"):
                continue
            local = Path(file).is_relative_to(self.folder) and "site-packages" not in file
            if name.partition(".")[0] == own or local:
                digest.update(name.encode() + b"\0" + Path(file).read_bytes())
        return digest.hexdigest()[:16]


@functools.cache
def _load(source: SamplerSource) -> Sampler:
    spec = source.spec
    module_name, colon, name = spec.partition(":")
    parts = [*module_name.split("."), *name.split(".")]
    if not colon or not all(part.isidentifier() for part in parts):
        raise InputError(f"--sampler is {spec!r}; required: package.module:function")
    if source.folder not in sys.path:
        sys.path.insert(0, source.folder)
    try:
        found: Any = importlib.import_module(module_name)
    except RheocheckError:
        raise
    except Exception as error:
        raise InputError(
            f"--sampler {spec}: importing {module_name} raised {type(error).__name__}: {error}; "
            f"required: a module that can be imported from {source.folder} or from the installed "
            f"packages"
        ) from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise InputError(
                f"--sampler {spec}: {module_name} has no {name}; required: the name of a sampler"
            )
        found = getattr(found, part)
    if not callable(found):
        raise InputError(
            f"--sampler {spec} is of type {type(found).__name__}; required: a callable "
            f"sampler(target, draft, choose) -> tuple of tokens"
        )
    return cast(Sampler, found)

"""Laws from files, tables to files.

A JSON file of nodes is one object {"target": law, "draft": law}, a list of them, or
{"nodes": list}. A law is a list of numbers or of strings such as "1/3"; strings and whole numbers
are exact. A draft may be {"ranking": law, "tempered": law}. An NPZ file has the arrays target and
draft, and tempered if probes are drawn from another law than tokens are ranked by: [vocab], or
[node, vocab].

A JSON file of a model is {"target": laws, "draft": laws}, each an object from path to law: "" is
the root, "2,0" the path of token 2 and then 0, "*" every path that is not listed.
"""

import csv
import json
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from rheocheck.bounds.growth import Path as TokenPath
from rheocheck.bounds.laws import DraftLike, LawLike
from rheocheck.errors import InputError
from rheocheck.text import as_fraction

Node = tuple[LawLike, DraftLike]


def read_nodes(path: Path) -> list[Node]:
    """Target and draft of every node in a JSON or NPZ file.

    Raises:
      InputError: The file cannot be read, or is not of the form above; the message names the place.
        Whether the laws are laws is not checked here.
    """
    if path.suffix.lower() == ".npz":
        return _from_arrays(path)
    content = _json(path)
    if isinstance(content, dict) and "nodes" in content:
        content = content["nodes"]
    items = content if isinstance(content, list) else [content]
    if not items:
        raise InputError(f"{path} has no node; required: at least one")
    nodes: list[Node] = []
    for index, item in enumerate(items):
        place = f"{path}, node {index}"
        given = _member(item, place, ("target", "draft"))
        target = _law(given["target"], f"{place}, target")
        nodes.append((target, _draft(given["draft"], f"{place}, draft")))
    return nodes


def read_model(
    path: Path,
) -> tuple[Callable[[TokenPath], LawLike], Callable[[TokenPath], DraftLike]]:
    """Target and draft of a JSON file as callables from path to law.

    Raises:
      InputError: The file cannot be read, or is not of the form above. The callables raise it for a
        path that is not listed where there is no "*".
    """
    given = _member(_json(path), str(path), ("target", "draft"))
    tables: dict[str, dict[str, Any]] = {}
    for name in ("target", "draft"):
        if not isinstance(given[name], dict) or not given[name]:
            raise InputError(f"{path}, {name} is {_shown(given[name])}; required: path -> law")
        read = _law if name == "target" else _draft
        tables[name] = {
            _path_key(key, f"{path}, {name}"): read(law, f"{path}, {name} at {key!r}")
            for key, law in given[name].items()
        }

    def model(name: str) -> Callable[[TokenPath], Any]:
        def law_at(tokens: TokenPath) -> Any:
            key = ",".join(map(str, tokens))
            found = tables[name].get(key, tables[name].get("*"))
            if found is None:
                raise InputError(f"{path}, {name}: no law at path {key!r} and none at '*'")
            return found

        return law_at

    return model("target"), model("draft")


def write_table(rows: Sequence[Mapping[str, Any]], path: Path) -> list[Path]:
    """Write rows as CSV and as JSON; columns are those of all rows, in the order they appear.

    Args:
      rows: Rows of scalars.
      path: Where to write, without suffix.

    Returns:
      The files written.
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    files = [path.with_name(path.name + suffix) for suffix in (".csv", ".json")]
    with files[0].open("w", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: row.get(name) for name in columns} for row in rows)
    files[1].write_text(json.dumps(list(rows), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return files


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is no UTF-8") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {error.lineno}: no JSON ({error.msg})") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: no JSON that can be read ({error})") from None


def _member(item: Any, place: str, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise InputError(f"{place} is {_shown(item)}; required: an object with {names}")
    for name in names:
        if name not in item:
            raise InputError(f"{place} has no {name!r}; required: an object with {names}")
    return item


def _draft(value: Any, place: str) -> DraftLike:
    if isinstance(value, dict):
        given = _member(value, place, ("ranking", "tempered"))
        ranking = _law(given["ranking"], f"{place}, ranking")
        return ranking, _law(given["tempered"], f"{place}, tempered")
    return _law(value, place)


def _law(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(f"{place} is {_shown(value)}; required: a list of masses")
    return [_mass(mass, f"{place}[{token}]") for token, mass in enumerate(value)]


def _mass(value: Any, place: str) -> Fraction | int | float:
    if isinstance(value, str):
        try:
            return as_fraction(value)
        except ValueError:
            raise InputError(f'{place} is {value!r}; required: a number such as "1/3"') from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{place} is {_shown(value)}; required: a number")
    return value


def _path_key(text: str, place: str) -> str:
    parts = text.split(",") if text not in ("", "*") else []
    if not all(part.strip().isascii() and part.strip().isdigit() for part in parts):
        raise InputError(f'{place} has the path {text!r}; required: tokens such as "2,0"')
    return text if text in ("", "*") else ",".join(str(int(part)) for part in parts)


def _from_arrays(path: Path) -> list[Node]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}") from None
    for name in ("target", "draft"):
        if name not in arrays:
            found = ", ".join(sorted(arrays)) or "none"
            raise InputError(f"{path} has no array {name!r}; it has: {found}")
    named = {name: arrays[name] for name in ("target", "draft", "tempered") if name in arrays}
    for name, array in named.items():
        if array.ndim not in (1, 2) or array.shape != named["target"].shape:
            raise InputError(
                f"{path}, {name} has shape {array.shape}; required: [vocab] or [node, vocab], the "
                f"same for all arrays"
            )
    rows = {name: np.atleast_2d(array) for name, array in named.items()}
    if "tempered" not in rows:
        return list(zip(rows["target"], rows["draft"], strict=True))
    drafts = zip(rows["draft"], rows["tempered"], strict=True)
    return list(zip(rows["target"], drafts, strict=True))


def json_number(value: Fraction | float) -> dict[str, Any]:
    """A number for a JSON file: its float, and the exact fraction where there is one."""
    shown: dict[str, Any] = {"value": float(value) if math.isfinite(value) else None}
    return shown | ({"exact": str(value)} if isinstance(value, Fraction) else {})


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."

"""The arrays of a trace: their names, what one entry stands for, their element types."""

from dataclasses import dataclass
from enum import Enum

import numpy as np

FORMAT = "rheocheck-trace"
SCHEMA_VERSION = 1
INDEX_NAME = "index.json"

# Dtypes of safetensors that NumPy has.
INTEGERS = {"I64": np.int64, "I32": np.int32, "I16": np.int16, "U8": np.uint8}
FLOATS = {"F64": np.float64, "F32": np.float32, "F16": np.float16}


class Axis(Enum):
    """What an entry of a concatenated array belongs to."""

    RECORD = "records"
    TOKEN = "emitted tokens"
    NODE = "drafted nodes"
    TARGET = "entries of sparse target laws"
    DRAFT = "entries of sparse draft laws"


@dataclass(frozen=True, slots=True)
class Field:
    """One array of a shard.

    Attributes:
      axis: Of its rows.
      is_float: Probabilities, logits or uniforms; else integers.
      is_wide: Has a second axis, the vocabulary.
    """

    axis: Axis
    is_float: bool = False
    is_wide: bool = False


FIELDS: dict[str, Field] = {
    "request": Field(Axis.RECORD),
    "round": Field(Axis.RECORD),
    "num_tokens": Field(Axis.RECORD),
    "num_nodes": Field(Axis.RECORD),
    "final_uniform": Field(Axis.RECORD, is_float=True),
    "token": Field(Axis.TOKEN),
    "at_node": Field(Axis.TOKEN),
    **{
        f"{law}_{form}": Field(Axis.TOKEN, is_float=True, is_wide=True)
        for law in ("target", "draft", "plain")
        for form in ("law", "logits")
    },
    "target_size": Field(Axis.TOKEN),
    "target_rest": Field(Axis.TOKEN, is_float=True),
    "target_id": Field(Axis.TARGET),
    "target_mass": Field(Axis.TARGET, is_float=True),
    "plain_mass": Field(Axis.TARGET, is_float=True),
    "plain_rest": Field(Axis.TOKEN, is_float=True),
    "draft_size": Field(Axis.TOKEN),
    "draft_rest": Field(Axis.TOKEN, is_float=True),
    "draft_id": Field(Axis.DRAFT),
    "draft_mass": Field(Axis.DRAFT, is_float=True),
    "probe_mass": Field(Axis.DRAFT, is_float=True),
    "node_token": Field(Axis.NODE),
    "node_parent": Field(Axis.NODE),
    "node_role": Field(Axis.NODE),
    "node_slot": Field(Axis.NODE),
    "node_rank": Field(Axis.NODE),
    "node_uniform": Field(Axis.NODE, is_float=True),
    "probe_uniform": Field(Axis.NODE, is_float=True),
    "probe_below": Field(Axis.NODE, is_float=True),
    "probe_at": Field(Axis.NODE, is_float=True),
}
REQUIRED = ("request", "round", "num_tokens", "token")
# Given all or none of each group.
TOGETHER = (
    ("target_size", "target_rest", "target_id", "target_mass"),
    ("draft_size", "draft_id", "draft_mass"),
    ("plain_mass", "plain_rest"),
    ("num_nodes", "at_node", "node_token", "node_parent", "node_role"),
    ("probe_below", "probe_at"),
)
# A field without these has no meaning.
NEEDS = {
    "final_uniform": "num_nodes",
    "node_slot": "num_nodes",
    "node_rank": "num_nodes",
    "node_uniform": "num_nodes",
    "probe_below": "num_nodes",
    "probe_uniform": "probe_below",
    "draft_rest": "draft_size",
    "probe_mass": "draft_size",
    "plain_mass": "target_size",
}

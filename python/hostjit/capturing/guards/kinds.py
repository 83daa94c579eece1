# SPDX-License-Identifier: Apache-2.0
"""The kinds of Dynamo's guards, by what watches them."""

from __future__ import annotations

__all__ = [
    "BY_PATH",
    "BY_VALUE",
    "GLOBAL_SOURCES",
    "GLOBAL_STATE",
    "HAS_ATTRIBUTE",
    "NOT_HIDDEN",
    "OF_ARGUMENTS",
    "OF_GRADIENTS",
    "OF_ORDER",
    "OF_REPLACEABLE_DICTS",
    "OF_REPLACEABLE_OBJECTS",
    "OF_REPLACEABLE_TENSORS",
    "OF_REPLACEABLE_TUPLES",
    "ONE_KEY",
    "WHOLE_DICT",
]

# About the state of the thread or the process: the caller compares it (see `capture`).
GLOBAL_STATE = frozenset(
    {
        *("GRAD_MODE", "DETERMINISTIC_ALGORITHMS", "GLOBAL_STATE", "TORCH_FUNCTION_STATE"),
        *("DEFAULT_DEVICE", "SHAPE_ENV", "AUTOGRAD_SAVED_TENSORS_HOOKS", "DUAL_LEVEL"),
        *("FUNCTORCH_STACK_MATCH",),
    }
)
GLOBAL_SOURCES = frozenset({"TorchFunctionModeStackSource", "CurrentStreamSource"})
# The identity of an immutable value, or the class of an object: walking the path covers it.
BY_PATH = frozenset(
    {
        *("ID_MATCH", "NONE_MATCH", "BOOL_MATCH"),
        *("NOT_NONE_MATCH", "FUNCTION_MATCH", "CLOSURE_MATCH", "BUILTIN_MATCH", "CLASS_MATCH"),
        *("MODULE_MATCH", "CONSTANT_SUBCLASS_MATCH", "TYPE_MATCH", "NN_MODULE"),
        *("SET_CONTAINS", "SET_NOT_CONTAINS", "WEAKREF_ALIVE"),
        # Forward hooks are watched for every module; those of backward change no result.
        *("TENSOR_MATCH", "DUPLICATE_INPUT", "EMPTY_NN_MODULE_HOOKS_DICT"),
    }
)
BY_VALUE = frozenset({"CONSTANT_MATCH", "EQUALS_MATCH"})
OF_REPLACEABLE_TENSORS = frozenset({"TENSOR_MATCH", "TYPE_MATCH", "DUPLICATE_INPUT"})
OF_GRADIENTS = frozenset({"TENSOR_MATCH", "TYPE_MATCH", "NOT_NONE_MATCH"})
OF_REPLACEABLE_TUPLES = frozenset({"TYPE_MATCH", "SEQUENCE_LENGTH"})
WHOLE_DICT = frozenset({"DICT_VERSION", "DICT_KEYS_MATCH", "MAPPING_KEYS_CHECK"})
OF_ORDER = WHOLE_DICT | {"SEQUENCE_LENGTH"}
ONE_KEY = frozenset({"DICT_CONTAINS", "DICT_NOT_CONTAINS"})
OF_REPLACEABLE_DICTS = OF_REPLACEABLE_TUPLES | WHOLE_DICT | ONE_KEY
OF_ARGUMENTS = BY_PATH | BY_VALUE | OF_ORDER | ONE_KEY
HAS_ATTRIBUTE = "HASATTR"
NOT_HIDDEN = "NOT_PRESENT_IN_GENERIC_DICT"
OF_GROWING_LISTS = frozenset({"TYPE_MATCH"})
OF_REPLACEABLE_OBJECTS = frozenset({"TYPE_MATCH", HAS_ATTRIBUTE, NOT_HIDDEN})

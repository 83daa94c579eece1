# SPDX-License-Identifier: Apache-2.0
"""What instructions take of the stack."""

from __future__ import annotations

import dis

from torch._dynamo.bytecode_transformation import Instruction

__all__ = ["CALL", "num_taken"]

# Takes the arguments of a call from the stack. Up to Python 3.11, CALL follows it.
CALL = "PRECALL" if "PRECALL" in dis.opmap else "CALL"
# How many values an operation takes from the stack; the second ones take as many more as they say.
_TAKES = {
    **dict.fromkeys(("NOP", "RESUME", "LOAD_CONST", "LOAD_DEREF", "LOAD_CLOSURE", "PUSH_NULL"), 0),
    **dict.fromkeys(("KW_NAMES", "JUMP_FORWARD", "JUMP_BACKWARD", "RETURN_CONST"), 0),
    **dict.fromkeys(("JUMP_BACKWARD_NO_INTERRUPT", "LOAD_ASSERTION_ERROR", "LOAD_NAME"), 0),
    **dict.fromkeys(("LOAD_SMALL_INT", "NOT_TAKEN", "PUSH_EXC_INFO", "LOAD_BUILD_CLASS"), 0),
    **dict.fromkeys(("MAKE_CELL", "COPY_FREE_VARS", "IMPORT_FROM", "EXTENDED_ARG"), 0),
    **dict.fromkeys(("POP_TOP", "STORE_FAST", "STORE_DEREF", "STORE_GLOBAL", "RETURN_VALUE"), 1),
    **dict.fromkeys(("LOAD_ATTR", "LOAD_METHOD", "GET_ITER", "FOR_ITER", "UNPACK_SEQUENCE"), 1),
    **dict.fromkeys(("LIST_APPEND", "SET_ADD", "LIST_EXTEND", "DICT_UPDATE", "END_FOR"), 1),
    **dict.fromkeys(("UNARY_NEGATIVE", "UNARY_NOT", "UNARY_INVERT", "UNARY_POSITIVE"), 1),
    **dict.fromkeys(("TO_BOOL", "FORMAT_SIMPLE", "CONVERT_VALUE", "BEFORE_WITH", "POP_ITER"), 1),
    **dict.fromkeys(("BINARY_OP", "COMPARE_OP", "IS_OP", "CONTAINS_OP", "BINARY_SUBSCR"), 2),
    **dict.fromkeys(("STORE_ATTR", "DELETE_SUBSCR", "FORMAT_WITH_SPEC", "MAP_ADD"), 2),
    **dict.fromkeys(("LIST_TO_TUPLE", "CALL_INTRINSIC_1", "DELETE_ATTR"), 1),
    **dict.fromkeys(("STORE_SUBSCR", "BINARY_SLICE"), 3),
    "STORE_SLICE": 4,
}
_TAKES_MORE = {
    **dict.fromkeys(("BUILD_TUPLE", "BUILD_LIST", "BUILD_SET", "BUILD_STRING", "BUILD_SLICE"), 0),
    **dict.fromkeys(("RAISE_VARARGS",), 0),
    **dict.fromkeys(("BUILD_CONST_KEY_MAP",), 1),
    "CALL_KW": 3,
    CALL: 2,
}


def num_taken(instruction: Instruction) -> int | None:
    """Return how many values an instruction takes of the stack; None if that is not known.

    Of those that put variables there, or move what is there, it is not.
    """
    name, argument = instruction.opname, instruction.arg or 0
    if name in _TAKES:
        return _TAKES[name]
    if name in _TAKES_MORE:
        return _TAKES_MORE[name] + argument
    if name == "BUILD_MAP":
        return 2 * argument
    if name == "FORMAT_VALUE":
        return 1 + (argument & 4 == 4)
    if name.startswith("POP_JUMP"):
        return 1
    return 2 if name == "CALL" else None

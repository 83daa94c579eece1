#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# check_machine.sh PYTHON CXX: says what is missing before anything is installed.
python=$1
cxx=$2

fail() {
  printf 'hostjit: %s\n' "$1" >&2
  exit 1
}

command -v "$python" >/dev/null ||
  fail "there is no $python. Install Python 3.11, 3.12 or 3.13, or run: make PYTHON=/path/to/python3"
"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null ||
  fail "$python is $("$python" --version 2>/dev/null || echo 'not usable'), and 3.11 to 3.13 is \
needed. Run: make PYTHON=/path/to/python3.11"
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
  fail "$python has no venv module. Install it (Debian and Ubuntu: apt install python3-venv)."
"$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' ||
  fail "$python has no C headers (Python.h). Install them (Debian and Ubuntu: apt install python3-dev)."
command -v "${cxx%% *}" >/dev/null ||
  fail "there is no C++ compiler $cxx. Install g++ 11 or newer (Debian and Ubuntu: apt install g++), \
or run: make CXX=/path/to/compiler"
echo '#include <concepts>
#include <span>
template <std::integral T> T same(std::span<T> values) { return values.front(); }' |
  $cxx -std=c++20 -x c++ -fsyntax-only - 2>/dev/null ||
  fail "$cxx does not compile C++20. Install g++ 11 or newer (Debian and Ubuntu: apt install g++), \
or run: make CXX=/path/to/compiler"

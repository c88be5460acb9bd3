"""Check every assembled script: Lua 5.1 syntax through lupa always, luacheck where it is installed.

The scripts are checked as the server gets them, includes and all, for a name that an include forgot to define is a
global only then. They are left in build/lua/, where the line numbers of the messages are.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from lupa.lua51 import LuaRuntime

from echomq.testing import _scripts as for_tests
from echomq.transitions import scripts

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "lua"


def without_shebang(source: str) -> str:
    """Blank the first line, which the server reads and Lua does not, and keep all line numbers."""
    first, _, rest = source.partition("\n")
    if not first.startswith("#!lua"):
        raise ValueError(f"a script begins with its shebang (#!lua), not with {first!r}")
    return f"\n{rest}"


def syntax_error(source: str, name: str) -> str | None:
    """Compile, without running, as Lua 5.1 does; answer its complaint."""
    lua = LuaRuntime(register_eval=False)
    compiled = lua.globals().loadstring(source, f"={name}")
    return str(compiled[1]) if isinstance(compiled, tuple) else None


def main() -> int:
    """Check all; answer the exit code."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    failed = False
    every = [*map(scripts.load, scripts.ALL_VERBS), *map(for_tests.load, for_tests.NAMES)]
    for script in every:
        verb = script.verb
        source = without_shebang(script.source)
        (OUT / f"{verb}.lua").write_text(source, encoding="utf-8")
        complaint = syntax_error(source, f"build/lua/{verb}.lua")
        if complaint:
            failed = True
            print(complaint, file=sys.stderr)
    count = len(every)
    if not count:
        print("no scripts were found", file=sys.stderr)
        return 1
    print(f"{count} scripts {'checked' if failed else 'are valid Lua 5.1'}")

    luacheck = shutil.which("luacheck")
    if luacheck is None:
        print("SKIPPED: luacheck is not installed (on Debian: apt install lua-check)")
    else:
        command = [luacheck, "--quiet", "--no-color", "--no-cache", "--config", ".luacheckrc", "build/lua"]
        failed |= subprocess.run(command, cwd=ROOT, check=False).returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

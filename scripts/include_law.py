"""Who may include whom: checks every #include "..." of the tree against one table.

include_law.py [--self-test]    fails with file:line and the rule that is broken
include_law.py --closure FILE   prints the project files that FILE includes, directly or not
"""

import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Folder -> what it may include besides itself. Rights are transitive. The longest matching folder
# counts. ARCHITECTURE.md explains the order.
LAW = {
    "include/kvserve": [],
    "src/base": ["include/kvserve"],
    "src/kernels": ["src/base"],
    "src/tensorfile": ["src/kernels"],
    "src/library": ["src/kernels"],
    "src/pipeline": ["src/base", "src/library", "src/kernels"],
    "src/frame": ["src/base"],
    "src/stages": ["src/pipeline", "src/frame"],
    "src/stages/transforms": ["src/pipeline", "src/kernels"],
    "src/stages/quantizers": ["src/pipeline", "src/kernels"],
    "src/stages/selectors": ["src/pipeline", "src/kernels"],
    "src/stages/codecs": ["src/pipeline", "src/kernels"],
    "src/paged": ["src/kernels"],
    "src/engine": ["src/base"],
    "src/evaluation": ["src/engine", "src/stages", "src/frame", "src/tensorfile"],
    "src/calibration": ["src/engine", "src/stages", "src/library", "src/tensorfile"],
    "src/gp": ["src/base"],
    "src/profiler": ["src/gp", "src/library", "src/evaluation"],
    "src/controller": ["src/base", "src/library"],
    "src/net": ["src/frame"],
    "src/store": ["src/frame", "src/net"],
    "src/transfer": ["src/net", "src/stages", "src/paged"],
    "src/runtime": ["src/transfer", "src/stages", "src/kernels", "src/tensorfile", "src/evaluation",
                    "src/calibration", "src/controller", "src/net", "src/store"],
    "src/sim": ["src/controller", "src/library"],
    "src/capi": ["include/kvserve"],
    "python": ["include/kvserve"],
    "tools/kvserve": ["src/runtime", "src/profiler", "src/sim"],
}
# Only registry.cc sees every stage; a stage sees no other stage.
STAGE_KINDS = ("src/stages/transforms", "src/stages/quantizers", "src/stages/selectors",
               "src/stages/codecs")
REGISTRY = ("src/stages/registry.cc", "src/stages/stages.def")
# The public headers stand on the standard library and this one alone.
PUBLIC_ANGLE = {"tl/expected.hpp"}
# Where #include "x" is looked for, beside the including file's own folder.
SEARCH = ("src", "include", "tools", "tools/kvserve")
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


def folder_of(path: str) -> str | None:
    """The LAW folder that a file belongs to."""
    fits = [folder for folder in LAW if path.startswith(folder + "/")]
    return max(fits, key=len, default=None)


def rights(folder: str) -> set[str]:
    """All folders that `folder` may include."""
    seen, todo = set(), [folder]
    while todo:
        here = todo.pop()
        if here not in seen:
            seen.add(here)
            todo.extend(LAW[here])
    return seen


def includes(root: Path, path: str):
    """(line, text, is_quoted) of each include of a file."""
    for number, line in enumerate((root / path).read_text(errors="replace").splitlines(), 1):
        found = INCLUDE.match(line)
        if found:
            yield number, found.group(1) or found.group(2), found.group(1) is not None


def resolve(root: Path, path: str, text: str) -> str | None:
    for base in (*SEARCH, str(Path(path).parent)):
        if (root / base / text).is_file():
            return str(Path(base) / text)
    return None


def broken_rule(path: str, target: str) -> str | None:
    """Why `path` must not include `target`, or None."""
    here, there = folder_of(path), folder_of(target)
    if here is None or there is None:
        return f"{target if there is None else path} is in no folder of the table"
    if there in STAGE_KINDS and path not in REGISTRY:
        own = Path(path).stem.removesuffix("_test").removesuffix("_bench")
        if here not in STAGE_KINDS or here != there or Path(target).stem != own:
            return "a stage is seen by src/stages/registry.cc alone"
        return None
    if there not in rights(here) and not (path in REGISTRY and there in STAGE_KINDS):
        allowed = ", ".join(sorted(rights(here) - {here})) or "nothing"
        return f"{here} may include {allowed}; not {there}"
    return None


def is_standard(header: str) -> bool:
    return "/" not in header and "." not in header


def check_file(root: Path, path: str) -> list[str]:
    faults = []
    for line, text, quoted in includes(root, path):
        if not quoted:
            if path.startswith("include/kvserve/") and not (
                    is_standard(text) or text in PUBLIC_ANGLE or text.startswith("std")):
                faults.append(f"{path}:{line}: a public header includes <{text}>")
            continue
        target = resolve(root, path, text)
        if target is None:
            continue  # generated, or a compiler's error
        rule = broken_rule(path, target)
        if rule:
            faults.append(f'{path}:{line}: includes "{text}": {rule}')
    return faults


def tree(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for top in ("src", "include", "tools", "python")
                  if (root / top).is_dir()
                  for path in (root / top).rglob("*")
                  if path.suffix in (".cc", ".c", ".h", ".cu", ".def", ".inc"))


def check_tree(root: Path) -> list[str]:
    return [fault for path in tree(root) for fault in check_file(root, path)]


def closure(root: Path, path: str) -> list[str]:
    """`path` and every project file that it includes, directly or not."""
    seen, todo = set(), [path]
    while todo:
        here = todo.pop()
        if here not in seen:
            seen.add(here)
            found = (resolve(root, here, text) for _, text, _ in includes(root, here))
            todo.extend(target for target in found if target)
    return sorted(seen)


def self_test() -> None:
    """Each rule, broken once in a tree of its own, and the same tree unbroken."""
    good = {
        "include/kvserve/view.h": "#include <span>\n#include <tl/expected.hpp>\n",
        "src/base/try.h": '#include "kvserve/view.h"\n',
        "src/pipeline/stage.h": '#include "base/try.h"\n',
        "src/kernels/rans/rans.h": '#include "base/try.h"\n',
        "src/stages/codecs/rans.h": '#include "pipeline/stage.h"\n',
        "src/stages/codecs/rans.cc": '#include "stages/codecs/rans.h"\n'
                                     '#include "kernels/rans/rans.h"\n',
        "src/stages/codecs/zstd.cc": '#include "pipeline/stage.h"\n',
        "src/stages/registry.cc": '#include "stages/codecs/rans.h"\n',
        "tools/kvserve/encode.cc": '#include "pipeline/stage.h"\n',
        "src/capi/codec.cc": '#include "kvserve/view.h"\n',
        "python/native/codec.cc": '#include "kvserve/view.h"\n',
    }
    bad = {
        "public header, foreign library": ("include/kvserve/view.h", "#include <zstd.h>\n"),
        "public header, inner layer": ("include/kvserve/view.h", '#include "base/try.h"\n'),
        "upwards": ("src/base/try.h", '#include "pipeline/stage.h"\n'),
        "sideways": ("src/kernels/rans/rans.h", '#include "pipeline/stage.h"\n'),
        "sibling stage": ("src/stages/codecs/zstd.cc", '#include "stages/codecs/rans.h"\n'),
        "stage from outside": ("tools/kvserve/encode.cc", '#include "stages/codecs/rans.h"\n'),
        "C ABI, inner layer": ("src/capi/codec.cc", '#include "base/try.h"\n'),
        "Python glue, inner layer": ("python/native/codec.cc", '#include "base/try.h"\n'),
        "unlisted folder": ("src/misc/x.h", '#include "base/try.h"\n'),
    }
    for name, change in {"unbroken": None, **bad}.items():
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            files = dict(good) if change is None else {**good, change[0]: change[1]}
            for path, text in files.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            faults = check_tree(root)
            if (change is None) != (not faults):
                sys.exit(f"include_law self-test: {name}: {faults or 'not noticed'}")
            if change is not None and not faults[0].startswith(f"{change[0]}:1:"):
                sys.exit(f"include_law self-test: {name}: wrong place: {faults}")


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--self-test"]:
        self_test()
        return 0
    if arguments[:1] == ["--closure"]:
        print("\n".join(closure(ROOT, arguments[1])))
        return 0
    faults = check_tree(ROOT)
    print("\n".join(faults) if faults else f"    {len(tree(ROOT))} files keep the include law")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

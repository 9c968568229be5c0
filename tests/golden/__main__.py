"""`python -m tests.golden`: compare all goldens with what is made now. `--update` stores that and prints what changed.

Names after the options choose groups or single goldens ("runs", "runs/chain").
"""

from __future__ import annotations

import argparse
import sys

import torch

from mars_viz.speculators import model_files
from tests.golden import links, store
from tests.golden.store import DATA, differences, load, packed, save
from tests.golden.subjects import GROUPS, Lab


def main() -> int:
    """Return 1 if something differs and nothing was updated."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("names", nargs="*", help="groups, or group/golden (default: all)")
    parser.add_argument("--update", action="store_true", help="store what is made now")
    parser.add_argument("--disturb", action="store_true", help="with slightly wrong weights; whole numbers must stay")
    options = parser.parse_args()
    if options.disturb and options.update:
        parser.error("Disturbed results are not stored. Leave one of the two out.")
    known = {"links", *GROUPS, *(f"{group}/{name}" for group, makers in GROUPS.items() for name in makers)}
    if unknown := set(options.names) - known:
        parser.error(f"There is no golden {min(unknown)}. Groups are links, {', '.join(GROUPS)}.")
    if options.disturb:
        disturb()
    lab, changed = Lab(), 0
    for group, makers in GROUPS.items():
        stored = load(group)
        kept = {name: columns for name, columns in stored.items() if name in makers}
        changed += len(stored) - len(kept)
        for name in stored.keys() - kept.keys():
            print(f"{group}/{name}: removed")
        for name, make in makers.items():
            if options.names and not {group, f"{group}/{name}"} & set(options.names):
                continue
            try:
                found = make(lab)
            except Exception as error:
                changed += 1
                print(f"{group}/{name}: raises {type(error).__name__}: {error}")
                continue
            lines = list(differences(kept.get(name, {}), found)) if name in kept else [f"new, {len(found)} columns"]
            changed += bool(lines)
            for line in lines:
                print(f"{group}/{name}: {line}")
            kept[name] = {key: packed(column) for key, column in found.items()}
        if options.update:
            save(group, {name: kept[name] for name in makers if name in kept})
    if not options.names or "links" in options.names:
        changed += links.update(write=options.update)
    lab.close()
    size = sum(path.stat().st_size for path in DATA.iterdir())
    print(f"{changed} goldens differ; {size / 1e3:.0f} kB{' stored' if options.update else ''}.")
    return int(changed > 0 and not options.update)


def disturb() -> None:
    """Move all weights by about 3e-6 of their size, and so logits by up to 1e-4, more than processors differ by."""
    load_model = model_files.loaded_model

    def loaded(*arguments: object, **options: object) -> torch.nn.Module:
        model = load_model(*arguments, **options)  # type: ignore[arg-type]
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(1 + 3e-6 * torch.randn(weight.shape, generator=generator))
        return model

    model_files.loaded_model = loaded
    store.TOLERANCE = 0.01


if __name__ == "__main__":
    sys.exit(main())

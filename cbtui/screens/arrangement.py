"""Where each panel stands, as a pure function of the terminal's size and of what there is to show.

Owns sizes and nothing else: no widget is known here, only names. Three arrangements (large, medium,
small) and one for terminals too small to show anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from textual.geometry import Region, Size

Kind = Literal["large", "medium", "small", "tiny"]

#: Smallest sizes of each kind, in cells.
LARGE, MEDIUM, SMALL = Size(140, 44), Size(100, 34), Size(60, 18)
#: Rows of the middle that show what a query sees and what it chose; beyond them the queue grows first.
COMFORTABLE = 15
#: Slots shown at once; more scroll.
MOST_SLOTS = 8
#: From this height on small screens have two lines of keys: one names too few of them.
TWO_KEY_LINES = 24
#: Panels that tabs choose from, by kind; each is (title, panels).
TABS: dict[Kind, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "large": (),
    "medium": (("Waiting", ("waiting",)), ("Finished", ("finished",))),
    "small": (
        ("Batch", ("slots", "waiting", "row")),
        ("Mask", ("mask",)),
        ("Timeline", ("timeline",)),
        ("Finished", ("finished",)),
        ("Counters", ("counters",)),
    ),
    "tiny": (),
}


def kind_of(size: Size) -> Kind:
    """The arrangement for a terminal of that size."""
    for kind, least in (("large", LARGE), ("medium", MEDIUM), ("small", SMALL)):
        if size.width >= least.width and size.height >= least.height:
            return kind  # type: ignore[return-value]  # the literals above
    return "tiny"


#: Cells of the box in the middle at most.
_CENTRE_MOST = 76


@dataclass(frozen=True, slots=True)
class Needs:
    """What the sizes depend on beside the terminal's.

    Attributes:
        slots: lanes to show.
        tab: number of the chosen tab, from 0.
        has_twin: the last run is to be held against one of the same requests.
        tab_cells: cells the heads of the tabs take.
        centre: lines of the box in the middle where it is so many cells wide; None: there is none.
        is_centre_low: it stands at the bottom of its place, because above it there is something to see.
    """

    slots: int = 3
    tab: int = 0
    has_twin: bool = False
    tab_cells: int = 30
    centre: Callable[[int], int] | None = None
    is_centre_low: bool = False


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Regions by panel name; what is not named is not shown."""

    kind: Kind
    regions: dict[str, Region]


def arrange(size: Size, needs: Needs) -> Arrangement:
    """The arrangement for a terminal of that size."""
    kind = kind_of(size)
    match kind:
        case "large":
            regions = _large(size, needs)
        case "medium":
            regions = _medium(size, needs)
        case "small":
            regions = _small(size, needs)
        case _:
            regions = {}
    if needs.has_twin:
        regions = _with_twin(kind, regions, needs)
    if needs.centre is not None and kind != "tiny":
        regions["centre"] = _centre(size, regions, needs.centre, is_low=needs.is_centre_low)
    return Arrangement(kind, regions)


def key_bar_lines(size: Size) -> int:
    """Lines of keys at the bottom."""
    return 2 if kind_of(size) == "small" and size.height >= TWO_KEY_LINES else 1


def _lanes(needs: Needs, most: int) -> int:
    return max(2, min(needs.slots, most))


def _large(size: Size, needs: Needs) -> dict[str, Region]:
    """All panels: who and why above, the step in the middle, its history below."""
    width, height = size
    lanes = _lanes(needs, MOST_SLOTS)
    # The longer lines (text, tokens, mask rows) are at the left.
    left = width - max(52, min(72, width * 37 // 100))
    slots, row, timeline, prompt = lanes + 2, 7, lanes + 4, 3
    # Beyond the sketch's 50 rows the row and the queue grow a little, the middle takes the rest.
    spare = max(0, height - 50)
    row += min(3, spare // 5)
    room = height - 2 - slots - row - timeline - prompt
    # The queue has what the middle can spare: six requests at 50 rows and three slots.
    waiting = max(5, min(8 + spare // 5, room - COMFORTABLE))
    if room - waiting < 9:
        shrink = 9 - (room - waiting)
        waiting, row = waiting - min(1, shrink), row - min(2, max(0, shrink - 1))
    middle = height - 2 - slots - waiting - row - timeline - prompt
    top = 1 + slots + waiting
    # Where the middle is low, what happened is worth more than how the last ones ended.
    finished = min(max(6 if middle >= 14 else 4, middle * 2 // 7), 12)
    return {
        "header": Region(0, 0, width, 1),
        "slots": Region(0, 1, left, slots),
        "waiting": Region(0, 1 + slots, left, waiting),
        "counters": Region(left, 1, width - left, slots + waiting),
        "row": Region(0, top, width, row),
        "mask": Region(0, top + row, left, middle),
        "finished": Region(left, top + row, width - left, finished),
        "happened": Region(left, top + row + finished, width - left, middle - finished),
        "timeline": Region(0, top + row + middle, width, timeline),
        "prompt": Region(0, height - 1 - prompt, width, prompt),
        "keys": Region(0, height - 1, width, 1),
    }


def _medium(size: Size, needs: Needs) -> dict[str, Region]:
    """Counters in one line; Waiting and Finished share a place."""
    width, height = size
    lanes = _lanes(needs, 5 if height < 42 else MOST_SLOTS)
    left = width - max(50, width * 37 // 100)
    slots, row, timeline, prompt = lanes + 2, 6, lanes + 4, 3
    shared = max(5, min(8, 5 + (height - 40) // 2))
    middle = height - 3 - slots - shared - row - timeline - prompt
    if middle < 7:
        timeline -= 1
        row -= 1
        middle += 2
    top = 2 + slots + shared
    tab = min(needs.tab, 1)
    return {
        "header": Region(0, 0, width, 1),
        "brief": Region(0, 1, width, 1),
        "slots": Region(0, 2, width, slots),
        ("waiting", "finished")[tab]: Region(0, 2 + slots, width, shared),
        "tabs": Region(2, 2 + slots, min(needs.tab_cells, width - 4), 1),
        "row": Region(0, top, width, row),
        "mask": Region(0, top + row, left, middle),
        "happened": Region(left, top + row, width - left, middle),
        "timeline": Region(0, top + row + middle, width, timeline),
        "prompt": Region(0, height - 1 - prompt, width, prompt),
        "keys": Region(0, height - 1, width, 1),
    }


def _small(size: Size, needs: Needs) -> dict[str, Region]:
    """One tab at a time; status, words and prompt under every tab. Panels have a rule above, no box."""
    width, height = size
    keys = key_bar_lines(size)
    regions = {
        "header": Region(0, 0, width, 1),
        "tabs": Region(0, 1, width, 1),
        "news": Region(0, height - 5 - keys, width, 3),
        "prompt": Region(0, height - 2 - keys, width, 2),
        "keys": Region(0, height - keys, width, keys),
    }
    content = Region(0, 2, width, height - 7 - keys)
    title, panels = TABS["small"][min(needs.tab, 4)]
    if title != "Batch":
        regions[panels[0]] = content
        return regions
    lanes = _lanes(needs, 4 if height < 28 else MOST_SLOTS)
    # The row needs a line a sequence, its figures and a rule; the queue has the rest, to six requests.
    waiting = max(2, min(7, content.height - 2 * lanes - 4))
    regions["slots"] = Region(0, 2, width, lanes + 1)
    regions["waiting"] = Region(0, 3 + lanes, width, waiting)
    regions["row"] = Region(0, 3 + lanes + waiting, width, content.height - lanes - 1 - waiting)
    return regions


def _with_twin(kind: Kind, regions: dict[str, Region], needs: Needs) -> dict[str, Region]:
    """The earlier run's timeline above the last one's, equally wide; what happened gets the room beside.

    The mask, which has only the very last step to show then, gives way.
    """
    if "timeline" not in regions:
        return regions
    timeline = regions["timeline"]
    if kind == "small":
        height = (timeline.height + 1) // 2
        upper, lower = timeline.split_horizontal(height)
        return {**regions, "twin": upper, "timeline": lower}
    mask, happened = regions["mask"], regions["happened"]
    height = timeline.height
    twin = Region(0, timeline.y - height, mask.width, height)
    mask = Region(0, mask.y, mask.width, mask.height - height)
    changed = {
        "twin": twin,
        "mask": mask,
        "timeline": Region(0, timeline.y, mask.width, height),
        "happened": Region(happened.x, happened.y, happened.width, timeline.bottom - happened.y),
    }
    if mask.height < 6:
        del changed["mask"], regions["mask"]
        changed["twin"] = Region(0, mask.y, mask.width, mask.height + height)
    return {**regions, **changed}


def _centre(size: Size, regions: dict[str, Region], lines: Callable[[int], int], *, is_low: bool) -> Region:
    """A box in the middle of the mask, or of what stands in its place, or else of the whole screen."""

    def wide(place: Region) -> int:
        return min(_CENTRE_MOST, place.width - 4)

    whole = Region(0, 2, size.width, size.height - 9)
    places = [regions[name] for name in ("mask", "row") if name in regions]
    place = next((region for region in places if region.height > lines(wide(region))), whole)
    width = wide(place)
    height = min(lines(width), place.height)
    room = place.height - height
    x = place.x + (place.width - width) // 2
    y = room - 1 if is_low else max(min(2, room), (room + 1) // 2)
    return Region(x, place.y + max(0, y), width, height)

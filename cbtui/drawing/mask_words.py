"""Says in words what the mask shows: its signs, and one cell of it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cbtui.drawing.mask import BLOCKED, CACHED, DEAD, NEW, PADDING, PADDING_KEY
from cbtui.drawing.mask_spots import Area, key_position, owner_of_key, owner_of_query
from cbtui.drawing.token_cells import FATES, token_line
from cbtui.drawing.window import merged
from cbtui.looks.pieces import Line, Piece, line_width
from cbtui.telling.naming import Badges
from cbtui.telling.words import ranges
from engine.step.mask import LayerKind, query_run
from engine.stream.records import NO_BLOCK, Segment, StepRecord

#: The bytes of a sequence's token at a position in a step; None: not known.
TokenAt = Callable[[Segment, int], bytes | None]


@dataclass(frozen=True, slots=True)
class Words:
    """What explaining needs beside the record: names, KV block size, the tokens' texts; keys a query sees in
    the shown layers, None: all before it."""

    badges: Badges
    block_size: int
    token_at: TokenAt
    window: int | None = None


def explain(record: StepRecord, area: Area, words: Words) -> Line:
    """Which query may see which key, or may not, and why: `B p10 may not see C p3: another sequence`."""
    if area.query_stop - area.query > 1:
        return _block(record, area, words)
    query = owner_of_query(record, area.row, area.query)
    key = owner_of_key(record, area.row, area.key)
    if query is None:
        is_own = area.key == 0
        reason = "padding: " + (
            "it sees padding's own first key alone, so that its sum is not empty; the result is thrown away"
            if is_own
            else "what it works out is thrown away"
        )
        return (("this query is ", "dim"), (reason, ""))
    named = [("query ", "dim"), *_named(query, area.query - query.q_start + query.position, words)]
    if key is None:
        return merged([*named, (" may not see this key: ", ""), ("padding", "strong")])
    if area.key_stop > key.kv_start + key.kv_len:
        return merged([*named, (" may not see these keys: ", ""), (_others(record, area), "strong")])
    first, last = key_position(key, area.key), key_position(key, area.key_stop - 1)
    named_key = _named(key, first, words)
    if last > first:
        named_key = [named_key[0], (f" p{first}–p{last}", "")]
    may, why = _verdict(query, key, area, words)
    return merged([*named, (f" {may} ", "strong"), *named_key, (f": {why}", "")])


def _verdict(query: Segment, key: Segment, area: Area, words: Words) -> tuple[str, str]:
    """`may see` or `may not see`, and the reason."""
    if query.request_id != key.request_id:
        return "may not see", "another sequence"
    count = area.key_stop - area.key
    start, stop = query_run(query, area.query - query.q_start, words.window)
    allowed = max(0, min(stop, area.key_stop) - max(start, area.key))
    is_before, is_after = area.key < start, area.key_stop > stop
    outside = f"outside the window of {words.window}"
    all_are = "" if count == 1 else "all "
    if not allowed:
        return "may not see", f"{all_are}{outside if is_before else 'in its future'}"
    dead = "; dead work" if query.kind == "dead" else ""
    if allowed < count:
        where = " or ".join([outside] * is_before + ["in its future"] * is_after)
        return f"may see {allowed} of {count} keys", f"the others are {where}{dead}"
    first_new = key.kv_start + key.num_cached
    if area.key >= first_new:
        if count == 1 and area.key == stop - 1:
            return "may see", "itself" + dead
        its = "an earlier token of its own" if count == 1 else "earlier tokens of its own"
        return "may see", f"{its}, new in this step{dead}"
    its = "its own earlier token" if count == 1 else "its own earlier tokens"
    return "may see", f"{its}, cached{_blocks(key, area, words)}{dead}"


def _others(record: StepRecord, area: Area) -> str:
    """How many sequences share a stretch of keys."""
    owners = sum(
        s.row == area.row and s.kv_start < area.key_stop and s.kv_start + s.kv_len > area.key
        for s in record.segments
    )
    return f"{owners} other sequences"


def _blocks(key: Segment, area: Area, words: Words) -> str:
    """In which KV blocks some cached keys lie; empty where the record does not say."""
    first, last = (key_position(key, place) // words.block_size for place in (area.key, area.key_stop - 1))
    if last >= len(key.block_ids) or NO_BLOCK in key.block_ids[first : last + 1]:
        return ""
    if first == last:
        return f" in KV block {key.block_ids[first]}"
    return f" in {last - first + 1} KV blocks, {key.block_ids[first]} to {key.block_ids[last]}"


def _named(segment: Segment, position: int, words: Words) -> list[Piece]:
    badge = words.badges[segment.request_id]
    text = token_line(words.token_at(segment, position), f"ink:{badge.colour}", 14)
    fate = segment.fate(position - segment.position)
    draft = f" ({FATES[fate]})" if fate else ""
    return [(badge.letter, f"badge:{badge.colour}"), (f" p{position} ", ""), *text, (draft, "dim")]


def _block(record: StepRecord, area: Area, words: Words) -> Line:
    """A cell of an overview: how many of its pairs are allowed, and of whom."""
    queries, keys = area.query_stop - area.query, area.key_stop - area.key
    allowed = 0
    owners: list[Segment] = []
    for segment in record.segments:
        pairs = allowed_pairs(segment, area, words.window)
        allowed += pairs
        if pairs:
            owners.append(segment)
    line: list[Piece] = [
        (f"{queries} {'query' if queries == 1 else 'queries'} × {keys} key{'s' * (keys != 1)}: ", "dim"),
        (f"{allowed:,} of {queries * keys:,} pairs allowed", "strong"),
    ]
    for number, segment in enumerate(owners[:6]):
        badge = words.badges[segment.request_id]
        line += [(", " if number == 0 else " ", ""), (badge.letter, f"badge:{badge.colour}")]
    if not allowed:
        line.append((": no sequence meets itself here", ""))
    return merged(line)


def is_allowed(record: StepRecord, area: Area, window: int | None = None) -> bool:
    """Whether any pair of an area is allowed; padding queries see padding's first key."""
    if any(allowed_pairs(segment, area, window) for segment in record.segments):
        return True
    return area.key == 0 and owner_of_query(record, area.row, area.query) is None


def allowed_pairs(segment: Segment, area: Area, window: int | None = None) -> int:
    """How many (query, key) pairs of an area one sequence allows. Costs the same for any size."""
    if segment.row != area.row:
        return 0
    # Query `offset` sees keys up to `base + offset`, of which a window takes those before it away again.
    base = segment.kv_start + segment.num_cached + 1
    pairs = _pairs_below(segment, area, base)
    return pairs if window is None else pairs - _pairs_below(segment, area, base - window)


def _pairs_below(segment: Segment, area: Area, base: int) -> int:
    """Pairs of an area with a key of the sequence below `base + offset` of the query."""
    first = max(0, area.query - segment.q_start)
    stop = min(segment.q_len, area.query_stop - segment.q_start)
    low = max(segment.kv_start, area.key)
    high = min(segment.kv_start + segment.kv_len, area.key_stop)
    if first >= stop or low >= high:
        return 0
    # With the query's number: none, then one more each, then all of them.
    rising = min(stop, max(first, low - base + 1))
    full = min(stop, max(rising, high - base))
    count = full - rising
    some = count * (base + rising - low) + count * (count - 1) // 2
    return some + (stop - full) * (high - low)


def layers_title(kinds: Sequence[LayerKind], shown: int) -> str:
    """In whose layers the drawn mask holds, for a title; empty where all see everything before them."""
    kind = kinds[shown]
    sees = f"window {kind.window:,}" if kind.window else "no window"
    if len(kinds) == 1:
        return sees if kind.window else ""
    return f"{sees}: {len(kind.layers)} of {sum(len(one.layers) for one in kinds)} layers"


def layers_words(kinds: Sequence[LayerKind], shown: int) -> str:
    """Which layers those are, in a sentence."""
    kind = kinds[shown]
    sees = f"the newest {kind.window:,} keys, its own included" if kind.window else "every key before it"
    if len(kinds) == 1:
        return f"all layers of this model are alike: a query sees {sees}"
    layers = f"layer{'s' * (len(kind.layers) > 1)} {ranges(kind.layers, at_most=5)}"
    return f"{layers} of {sum(len(one.layers) for one in kinds)}: a query sees {sees}"


def legend(record: StepRecord, width: int) -> Line:
    """The signs this step needs, as far as they fit."""
    parts = [(NEW, "new")]
    if any(segment.num_cached for segment in record.segments):
        parts.append((CACHED, "cached"))
    parts.append((BLOCKED, "blocked"))
    if record.tokens.padding or any(s.kv_start for s in record.segments if record.layout == "padded"):
        parts.append((PADDING, "padding"))
    if any(segment.kind == "dead" for segment in record.segments):
        parts.append((DEAD, "dead: finished, still fed"))
    if record.tokens.rejected:
        parts.append((DEAD, "draft that came to nothing"))
    if any(s.q_start for s in record.segments if record.layout == "padded"):
        parts.append((PADDING_KEY, "padding's own key"))
    line: list[tuple[str, str]] = []
    for glyph, text in parts:
        more = [("   " if line else "", ""), (glyph, ""), (f" {text}", "dim")]
        if line_width((*line, *more)) > width:
            break
        line.extend(more)
    return merged(line)

"""Pure renderers: records in, lines of styled pieces out. No app, no widgets, no engine thread.

Style names beyond those of `cbtui.looks.pieces`: `faint` (blocked cells, idle slots), `padding` (what padding
fills), `reverse`, `block:#rrggbb` (solid shapes in a request's colour), `sampled:#rrggbb` (the token whose
logits were sampled: in the request's colour, bold and underlined).
"""

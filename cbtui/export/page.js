"use strict";
// Draws a recorded run. Data is lists from page_data.py; texts get into the page as text only.
(async () => {
  const $ = (id) => document.getElementById(id);
  const data = await unpacked($("data").textContent);
  const { requests, modes, reasons } = data;
  const PREFILL = 0, DEAD = 2;
  const KINDS = ["prompt", "decode", "recomputed", "dead", "padding", "rejected"];
  const kindColours = () => [css.accent, css.quiet, css.warn, css.bad, css.line, css.text];
  const steps = data.steps.map(step);
  inherit("waiting");
  inherit("standingBy");
  // Steps are known by their place; their numbers may have gaps, where a source knows nothing of some.
  const isDrafting = steps.some((one) => one.segments.some((s) => s.guessed));
  const count = steps.length, numberOf = (place) => data.numbers[place];
  const placeOf = (step) => { const found = data.numbers.findIndex((one) => one >= step); return found < 0 ? count - 1 : found; };
  let at = 0, theme = 0, css = {}, zoom = 0, everyCell = false, layer = 0, cursor = null, player = 0;

  // -- data ---------------------------------------------------------------------------------

  async function unpacked(text) {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  }

  function step(row) {
    const names = ["mode", "isPadded", "start", "ms", "rows", "cols", "keys", "kinds", "maxSeqs", "budget",
      "usedBlocks", "blocks", "waitingCount", "waiting", "standingBy", "segments"];
    const one = Object.fromEntries(names.map((name, place) => [name, row[place]]));
    one.segments = one.segments.map((fields) => {
      const [request, slot, kind, r, qStart, qLen, kvStart, kvLen, position, left, sampled, logprob, top, ids, drafts] = fields;
      const [guessed, accepted, used] = drafts || [0, 0, 0];
      return { request, slot, kind, row: r, qStart, qLen, kvStart, kvLen, position, left, sampled, logprob, top, guessed, accepted, used,
        ids: ids || requests[request].ids.slice(position, position + qLen), cached: kvLen - qLen };
    });
    return one;
  }

  function inherit(name) {
    let before = [];
    for (const one of steps) before = one[name] = one[name] === 0 ? before : one[name];
  }

  const bytesOf = (id) => (data.tokens[id] || [""])[0];
  const visible = (id) => (data.tokens[id] || ["", id < 0 ? "?" : "∅"])[1];
  const decoder = new TextDecoder();
  const textOf = (ids) => harmless(decoder.decode(Uint8Array.from(ids.map(bytesOf).join(""), (c) => c.charCodeAt(0))));

  // What could hide, reorder or command is shown by its number.
  function harmless(text) {
    return text.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (c) =>
      c < " " ? String.fromCharCode(0x2400 + c.charCodeAt(0)) : `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
  }

  // What became of a segment's token number `place`: empty where it is no draft.
  function fate(segment, place) {
    const number = place - segment.qLen + segment.guessed;
    return number < 0 ? "" : number < segment.used ? "accepted" : number < segment.accepted ? "unused" : "rejected";
  }
  const FATES = { accepted: ["✓", "an accepted draft"], unused: ["○", "a draft that was right, behind the end"], rejected: ["✗", "a rejected draft"] };

  const gainedIn = (segment) => segment.used + (segment.kind !== DEAD && segment.sampled !== null ? 1 : 0);
  const madeIn = (segment) => Math.max(0, segment.position + segment.qLen - segment.guessed - requests[segment.request].numPrompt) + gainedIn(segment);
  // A dead row feeds its last token again: everything it will ever have is there.
  const outputs = (segment) => segment.kind === DEAD
    ? requests[segment.request].ids.length - requests[segment.request].numPrompt : madeIn(segment);

  // -- words --------------------------------------------------------------------------------

  const number = (value, digits = 0) => value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const percent = (share) => `${number(100 * share, 1)} %`;
  const plural = (n, noun) => `${number(n)} ${noun}${n === 1 ? "" : "s"}`;
  const time = (ms) => ms === null ? "–" : ms < 9.95 ? `${number(ms, 1)} ms` : ms < 995 ? `${number(ms)} ms` : `${number(ms / 1000, 2)} s`;

  // The end of a text, in whole characters.
  function ending(text, most) {
    const characters = Array.from(text);
    return characters.length > most ? "…" + characters.slice(-most).join("") : text;
  }

  function element(tag, className, ...children) {
    const one = document.createElement(tag);
    if (className) one.className = className;
    one.append(...children.filter((child) => child !== null && child !== undefined));
    return one;
  }

  const shade = (request) => data.colours[requests[request].colour][2 * theme];
  const ink = (request) => data.colours[requests[request].colour][2 * theme + 1];

  function badge(request) {
    const one = element("span", "badge", requests[request].letter);
    one.style.background = shade(request);
    one.style.color = ink(request);
    one.title = requests[request].prompt.slice(0, 400);
    return one;
  }

  // -- the run ------------------------------------------------------------------------------

  function drawHead() {
    const { header } = data;
    $("name").textContent = header.model;
    $("about").textContent = [modes.join(", then "), plural(data.numSlots, "slot"), header.engine, header.device, header.dtype, header.machine,
      plural(header.threads, "thread")].filter(Boolean).join(" · ");
    const total = (place) => steps.reduce((sum, one) => sum + one.kinds[place], 0);
    const positions = KINDS.reduce((sum, _, place) => sum + total(place), 0);
    const drafts = (count) => steps.reduce((sum, one) => sum + one.segments.reduce((all, s) => all + s[count], 0), 0);
    const seconds = steps.reduce((sum, one) => sum + one.ms, 0) / 1000;
    const made = steps.reduce((sum, one) => sum + one.segments.reduce((all, s) => all + gainedIn(s), 0), 0);
    const useful = steps.reduce((sum, one) => sum + one.segments.filter((s) => s.kind !== DEAD).length, 0);
    const lanes = steps.reduce((sum, one) => sum + one.maxSeqs, 0);
    const started = requests.filter((one) => one.ttft !== null);
    const figures = [
      ["steps", number(count)], ["requests", number(requests.length)], ["output tokens", number(made)],
      ["output tokens/s", seconds ? number(made / seconds, 1) : "–"], ["engine time", `${number(seconds, 2)} s`],
      ["slot occupancy", percent(useful / (lanes || 1))], ["dead work", percent(total(3) / (positions || 1))],
      ["padding", percent(total(4) / (positions || 1))],
      ...(isDrafting ? [["rejected drafts", percent(total(5) / (positions || 1))], ["drafts accepted", percent(drafts("accepted") / drafts("guessed"))]] : []),
      ["mean TTFT", started.length ? time(started.reduce((sum, one) => sum + one.ttft, 0) / started.length) : "–"],
    ];
    $("unsure").replaceChildren(...header.unsure.map((text) => element("li", "", text)));
    $("unsure-box").hidden = !header.unsure.length;
    $("figures").replaceChildren(...figures.map(([name, value]) => element("div", "", element("dt", "", name), element("dd", "", value))));
    const signs = ["prefill", "decode", "dead", "idle"].map((kind) => [element("i", kind), kind === "dead" ? "dead: ended, slot held" : kind]);
    $("legend").replaceChildren(...signs.flat());
  }

  const REQUESTS_SHOWN = 200;

  function drawRequests(shown) {
    const head = ["", "prompt", "output", "tokens", "ended", "queue", "TTFT", "TPOT", "E2E", "first step", "last step"];
    const row = element("tr", "", ...head.map((name, place) => element("th", place < 3 ? "left" : "", name)));
    const rows = requests.slice(0, shown).map((one, place) => {
      const cell = (text) => element("td", "", text);
      const reason = element("td", one.error ? "bad" : "", one.error || one.reason || "unfinished");
      const line = element("tr", "", element("td", "left", badge(place)), element("td", "text", one.prompt), element("td", "text", one.output),
        cell(`${one.numPrompt} + ${one.ids.length - one.numPrompt}`), reason, cell(time(one.queue)), cell(time(one.ttft)), cell(time(one.tpot)),
        cell(time(one.e2e)), cell(one.first ?? "–"), cell(one.last ?? "–"));
      if (one.label) line.title = one.label;
      if (one.first !== null) {
        line.tabIndex = 0;
        line.addEventListener("click", () => go(placeOf(one.first)));
        line.addEventListener("keydown", (event) => { if (event.key === "Enter") go(placeOf(one.first)); });
      }
      return line;
    });
    const table = $("requests");
    table.replaceChildren(element("thead", "", row), element("tbody", "", ...rows));
    if (shown < requests.length) {
      const all = element("button", "", `all ${number(requests.length)}`);
      all.addEventListener("click", () => drawRequests(requests.length));
      table.append(element("caption", "", all));
    }
  }

  // -- canvases: only what is in view is drawn, whatever the size of the whole ----------------

  function surface(canvas, width, height, wholeWidth, wholeHeight) {
    const box = canvas.parentElement, scale = window.devicePixelRatio || 1;
    const sizer = box.querySelector(".sizer");
    sizer.style.width = `${wholeWidth}px`;
    sizer.style.height = `${wholeHeight}px`;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    return pen;
  }

  function stripes(colour) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const pen = tile.getContext("2d");
    pen.strokeStyle = colour;
    pen.lineWidth = 2;
    for (const shift of [-6, 0, 6]) { pen.beginPath(); pen.moveTo(shift, 6); pen.lineTo(shift + 6, 0); pen.stroke(); }
    return tile;
  }

  // -- timeline -----------------------------------------------------------------------------

  const GUTTER = 54, BAND = 22, LANE = 22, CHART = 46, AXIS = 20;
  const visibleLanes = Math.min(data.numSlots, 32);
  const lanesBySlot = Array.from({ length: data.numSlots }, () => []);
  for (const lane of data.lanes) lanesBySlot[lane[0]].push(lane);
  const most = (value) => steps.reduce((high, one) => Math.max(high, value(one)), 1);
  const mostPositions = most((one) => one.kinds.reduce((a, b) => a + b)), mostBlocks = most((one) => one.usedBlocks);
  // A server may have no pool of blocks.
  const hasBlocks = steps.some((one) => one.blocks), CHARTS = hasBlocks ? 2 : 1;

  function timelineScale() {
    const width = $("timeline-box").clientWidth;
    const fit = (width - GUTTER - 10) / count;
    const wanted = [fit, 6, 18][zoom];
    return { width, px: Math.max(fit, wanted) };
  }

  function drawTimeline() {
    const box = $("timeline-box"), canvas = $("timeline");
    const { width, px } = timelineScale();
    const height = BAND + data.numSlots * LANE + CHARTS * CHART + AXIS;
    const shownHeight = Math.min(height, BAND + visibleLanes * LANE + CHARTS * CHART + AXIS);
    const whole = GUTTER + 10 + px * count;
    box.style.maxHeight = `${shownHeight + 16}px`;
    const pen = surface(canvas, width, height, whole, height);
    const shift = box.scrollLeft;
    const x = (place) => GUTTER + place * px - shift;
    const from = Math.max(0, Math.floor(shift / px)), to = Math.min(count, Math.ceil((shift + width) / px));
    pen.save();
    pen.beginPath();
    pen.rect(GUTTER, 0, width - GUTTER, height);
    pen.clip();
    const mark = stripes(css.ground);
    for (let slot = 0; slot < data.numSlots; slot++) {
      const y = BAND + slot * LANE;
      pen.fillStyle = css.panel;
      pen.fillRect(x(from), y + 1, x(to) - x(from), LANE - 3);
      let owner = -1;
      const letters = [];
      for (const [, kind, request, begin, end] of lanesBySlot[slot]) {
        const left = x(begin), right = Math.max(x(end + 1), left + 1.2);
        const isNew = request !== owner;
        owner = request;
        if (right < GUTTER || left > width) continue;
        pen.globalAlpha = [1, 0.62, 0.3][kind];
        pen.fillStyle = shade(request);
        pen.fillRect(left, y + 1, right - left, LANE - 3);
        pen.globalAlpha = 1;
        if (kind === DEAD) {
          pen.fillStyle = pen.createPattern(mark, "repeat");
          pen.globalAlpha = 0.7;
          pen.fillRect(left, y + 1, right - left, LANE - 3);
          pen.globalAlpha = 1;
        }
        if (isNew) letters.push([left, request]);
      }
      pen.textAlign = "center";
      pen.font = "bold 12px system-ui, sans-serif";
      letters.forEach(([left, request], place) => {
        const size = 9 + 8 * requests[request].letter.length;
        if (place + 1 < letters.length && letters[place + 1][0] - left < size) return;
        pen.fillStyle = shade(request);
        pen.fillRect(left, y + 1, size, LANE - 3);
        pen.fillStyle = ink(request);
        pen.fillText(requests[request].letter, left + size / 2, y + LANE / 2);
      });
    }
    pen.font = "12px system-ui, sans-serif";
    let free = 0;
    for (const [marked, kind, text] of data.marks) {
      const isMode = kind === "mode", place = x(marked + (isMode ? 0 : 1));
      pen.strokeStyle = isMode ? css.text : css.quiet;
      pen.setLineDash(isMode ? [] : [3, 3]);
      pen.beginPath();
      pen.moveTo(place, BAND - 6);
      pen.lineTo(place, BAND + data.numSlots * LANE);
      pen.stroke();
      if (place < free) continue;
      pen.fillStyle = isMode ? css.text : css.quiet;
      pen.textAlign = isMode ? "left" : "right";
      pen.fillText(text, place + (isMode ? 4 : -4), BAND / 2);
      free = place + 8 * text.length + 16;
    }
    pen.setLineDash([]);
    drawCharts(pen, x, from, to, px);
    const here = x(at);
    pen.fillStyle = css.accent;
    pen.globalAlpha = 0.22;
    pen.fillRect(here, BAND, Math.max(px, 2), height - BAND - AXIS);
    pen.globalAlpha = 1;
    pen.fillRect(here + px / 2 - 1, BAND - 4, 2, height - BAND - AXIS + 8);
    const stride = niceStride(70 / px);
    pen.textAlign = "center";
    for (let place = from; place < to; place++) {
      const one = numberOf(place);
      const isShown = one % stride === 0 && Math.abs(place - at) * px > 34;
      if (!isShown && place !== at) continue;
      pen.fillStyle = place === at ? css.accent : css.quiet;
      pen.fillText(number(one), Math.min(Math.max(x(place) + px / 2, GUTTER + 12), width - 18), height - AXIS / 2);
    }
    pen.restore();
    pen.textAlign = "right";
    pen.fillStyle = css.quiet;
    for (let slot = 0; slot < data.numSlots; slot++) pen.fillText(slot, GUTTER - 10, BAND + slot * LANE + LANE / 2);
    pen.fillText("tokens", GUTTER - 8, BAND + data.numSlots * LANE + CHART / 2);
    if (hasBlocks) pen.fillText("KV", GUTTER - 8, BAND + data.numSlots * LANE + CHART * 1.5);
    canvas.setAttribute("aria-label", `Timeline of ${plural(count, "step")} in ${plural(data.numSlots, "slot")}; step ${numberOf(at)} is shown`);
    canvas.dataset.origin = `${GUTTER - shift},${BAND}`;
    canvas.dataset.cell = `${px},${LANE}`;
    canvas.dataset.step = numberOf(at);
  }

  // What each step's tensor was spent on, stacked, and the KV blocks in use.
  function drawCharts(pen, x, from, to, px) {
    const base = BAND + data.numSlots * LANE;
    const colours = kindColours();
    const every = Math.max(1, Math.floor(1 / px));
    for (let place = from; place < to; place += every) {
      let tallest = steps[place];
      for (let other = place + 1; other < Math.min(place + every, to); other++) {
        const sum = (one) => one.kinds.reduce((a, b) => a + b);
        if (sum(steps[other]) > sum(tallest)) tallest = steps[other];
      }
      let y = base + CHART - 4;
      const wide = Math.max(1, px * every - (px > 4 ? 1 : 0));
      tallest.kinds.forEach((value, kind) => {
        const high = (CHART - 10) * value / mostPositions;
        pen.fillStyle = colours[kind];
        pen.fillRect(x(place), y - high, wide, high);
        y -= high;
      });
      if (!hasBlocks) continue;
      const share = steps[place].usedBlocks / mostBlocks;
      pen.fillStyle = css.accent;
      pen.globalAlpha = 0.55;
      pen.fillRect(x(place), base + 2 * CHART - 4 - (CHART - 10) * share, Math.max(1, px * every), (CHART - 10) * share + 1);
      pen.globalAlpha = 1;
    }
  }

  function niceStride(least) {
    for (let power = 1; ; power *= 10) for (const factor of [1, 2, 5]) if (factor * power >= least) return factor * power;
  }

  const placeAt = (event) => {
    const { px } = timelineScale();
    const x = event.clientX - $("timeline").getBoundingClientRect().left - GUTTER + $("timeline-box").scrollLeft;
    return Math.min(count - 1, Math.max(0, Math.floor(x / px)));
  };

  function chartLegend() {
    const signs = KINDS.map((name, kind) => {
      const sign = element("span", "", "■ ");
      sign.style.color = kindColours()[kind];
      return name === "rejected" && !isDrafting ? [] : [sign, `${name}  `];
    });
    $("under-timeline").replaceChildren("tokens of a step: ", ...signs.flat(),
      hasBlocks ? `· KV blocks in use, at most ${number(mostBlocks)} of ${number(steps[0].blocks)}` : "");
  }

  function timelineWords(event) {
    const slot = Math.floor((event.clientY - $("timeline").getBoundingClientRect().top - BAND) / LANE);
    const place = placeAt(event), one = steps[place];
    const parts = [`step ${number(numberOf(place))}`];
    const segment = one.segments.find((s) => s.slot === slot);
    if (slot >= 0 && slot < data.numSlots) parts.push(`slot ${slot}: ${segment ? `${requests[segment.request].letter} ${["prefill", "decode", "dead"][segment.kind]}` : "idle"}`);
    parts.push(kindWords(one), ...(hasBlocks ? [`KV blocks ${number(one.usedBlocks)} of ${number(one.blocks)}`] : []), time(one.ms));
    $("under-timeline").textContent = parts.join(" · ");
  }

  const kindWords = (one) => KINDS
    .map((name, place) => [name, one.kinds[place]]).filter(([, value]) => value).map(([name, value]) => `${name} ${number(value)}`).join(", ");

  // -- mask ---------------------------------------------------------------------------------

  const HEAD = 20, SIDE = 58, TALLEST = 520;

  // One grid over the step's queries and its keys; the rows of a rectangle stand below each other.
  function maskShape(one) {
    const width = $("mask-box").clientWidth;
    const queries = one.rows * one.cols;
    const fitX = (width - SIDE - 4) / one.keys, fitY = (TALLEST - HEAD - 4) / queries;
    const sx = everyCell ? Math.max(14, fitX) : Math.min(26, fitX);
    const sy = everyCell ? 14 : Math.min(22, Math.max(fitY, 0.5));
    return { width, queries, sx: Math.min(sx, 26), sy };
  }

  function segmentOf(one, query) {
    const row = Math.floor(query / one.cols), column = query % one.cols;
    return one.segments.find((s) => s.row === row && s.qStart <= column && column < s.qStart + s.qLen) || null;
  }

  // Columns [start, stop) of the key axis that the query may look at: as engine/step/mask.py has it.
  function seen(one, query) {
    const segment = segmentOf(one, query);
    if (!segment) return { segment, start: 0, stop: 1 };
    const stop = segment.kvStart + segment.cached + query % one.cols - segment.qStart + 1, window_ = data.windows[layer];
    return { segment, start: window_ === null ? segment.kvStart : Math.max(segment.kvStart, stop - window_), stop };
  }

  function drawMask() {
    const one = steps[at], box = $("mask-box"), canvas = $("mask");
    const { width, queries, sx, sy } = maskShape(one);
    const wholeWidth = SIDE + sx * one.keys + 4, wholeHeight = HEAD + sy * queries + 4;
    const height = Math.min(wholeHeight, TALLEST);
    const pen = surface(canvas, Math.min(width, Math.max(wholeWidth, 200)), height, wholeWidth, wholeHeight);
    const ox = box.scrollLeft, oy = box.scrollTop;
    const x = (key) => SIDE + key * sx - ox, y = (query) => HEAD + query * sy - oy;
    const gapX = sx >= 5 ? 1 : 0, gapY = sy >= 5 ? 1 : 0;
    const top = Math.max(0, Math.floor(oy / sy)), bottom = Math.min(queries, Math.ceil((oy + height - HEAD) / sy));
    const firstKey = Math.max(0, Math.floor(ox / sx)), lastKey = Math.min(one.keys, Math.ceil((ox + width - SIDE) / sx));
    pen.save();
    pen.beginPath();
    pen.rect(SIDE, HEAD, width - SIDE, height - HEAD);
    pen.clip();
    pen.fillStyle = css.panel;
    pen.globalAlpha = 0.55;
    pen.fillRect(x(0), y(0), sx * one.keys - gapX, sy * queries - gapY);
    pen.globalAlpha = 1;
    for (let query = top; query < bottom; query++) {
      const { segment, start, stop } = seen(one, query);
      const cachedEnd = segment ? segment.kvStart + segment.cached : 0;
      const paint = (from, to, colour, alpha) => {
        from = Math.max(from, firstKey);
        to = Math.min(to, lastKey);
        if (to <= from) return;
        pen.fillStyle = colour;
        pen.globalAlpha = alpha;
        if (gapX) for (let key = from; key < to; key++) pen.fillRect(x(key), y(query), sx - gapX, sy - gapY);
        else pen.fillRect(x(from), y(query), Math.max((to - from) * sx, 0.7), sy - gapY);
      };
      if (!segment) paint(start, stop, css.line, 1);
      else {
        const isWaste = segment.kind === DEAD || ["unused", "rejected"].includes(fate(segment, query % one.cols - segment.qStart));
        const faint = isWaste ? 0.45 : 1;
        paint(start, Math.min(cachedEnd, stop), shade(segment.request), 0.42 * faint);
        paint(Math.max(cachedEnd, start), stop, shade(segment.request), faint);
      }
    }
    pen.globalAlpha = 1;
    if (gapX && gapY && (bottom - top) * (lastKey - firstKey) < 20000) {
      pen.fillStyle = css.quiet;
      pen.globalAlpha = 0.5;
      for (let query = top; query < bottom; query++) {
        const { start, stop } = seen(one, query);
        for (let key = firstKey; key < lastKey; key++) {
          if (key < start || key >= stop) pen.fillRect(x(key) + sx / 2 - 1.2, y(query) + sy / 2 - 1.2, 1.5, 1.5);
        }
      }
      pen.globalAlpha = 1;
    }
    if (one.isPadded && one.cols > 1) {
      pen.fillStyle = css.ground;
      for (let row = 1; row < one.rows; row++) pen.fillRect(x(0), y(row * one.cols) - 2, sx * one.keys, 3);
    }
    if (cursor) {
      const { start, stop } = seen(one, cursor.query);
      pen.strokeStyle = css.accent;
      pen.lineWidth = 1;
      pen.strokeRect(x(start) - 1, y(cursor.query) - 1, (stop - start) * sx + 1, sy + 1);
      pen.lineWidth = 2;
      pen.strokeRect(x(cursor.key) - 1, y(cursor.query) - 1, Math.max(sx, 3) + 1, Math.max(sy, 3) + 1);
    }
    pen.restore();
    drawKeyOwners(pen, one, x, sx, width);
    drawQueryLabels(pen, one, y, sy, top, bottom, height);
    canvas.dataset.origin = `${SIDE - ox},${HEAD - oy}`;
    canvas.dataset.cell = `${sx},${sy}`;
    canvas.dataset.step = numberOf(at);
    canvas.setAttribute("aria-label", `Mask of step ${numberOf(at)}: ${plural(queries, "query").replace("querys", "queries")} by ${plural(one.keys, "key")}`);
    const [kinds, which] = data.layers[layer];
    $("mask-size").textContent = `${number(queries)} × ${number(one.keys)}, ${one.isPadded ? "a rectangle's rows below each other" : "block-diagonal"}${kinds && ` · ${kinds}`}${data.header.maskDoubt && ` · ${data.header.maskDoubt}`}`;
    $("mask-size").title = which;
    maskWords();
  }

  function drawKeyOwners(pen, one, x, sx, width) {
    pen.save();
    pen.beginPath();
    pen.rect(SIDE, 0, width - SIDE, HEAD);
    pen.clip();
    pen.textAlign = "center";
    for (const s of one.isPadded ? [] : one.segments) {
      const left = x(s.kvStart), right = x(s.kvStart + s.kvLen) - (sx >= 5 ? 1 : 0);
      pen.fillStyle = shade(s.request);
      pen.fillRect(left, 0, Math.max(right - left, 1), HEAD - 4);
      const letter = requests[s.request].letter;
      const texts = [s.cached ? `${letter}  ${s.cached} cached + ${s.qLen} new` : `${letter}  ${s.qLen} new`, letter];
      const text = texts.find((t) => pen.measureText(t).width < right - left - 4);
      if (!text) continue;
      pen.fillStyle = ink(s.request);
      pen.fillText(text, (left + right) / 2, (HEAD - 4) / 2);
    }
    if (one.isPadded) {
      pen.fillStyle = css.quiet;
      pen.textAlign = "left";
      pen.fillText(`${plural(one.keys, "key")} of each row →`, SIDE, HEAD / 2 - 2);
    }
    pen.restore();
  }

  function drawQueryLabels(pen, one, y, sy, top, bottom, height) {
    pen.save();
    pen.beginPath();
    pen.rect(0, HEAD, SIDE, height - HEAD);
    pen.clip();
    pen.textAlign = "right";
    let free = -99;
    for (let query = top; query < bottom; query++) {
      const segment = segmentOf(one, query);
      const isFirst = segment && query % one.cols === segment.qStart;
      const middle = Math.max(y(query) + sy / 2, HEAD + 6);  // a topmost label is not cut in half
      if (sy < 11 && !isFirst) continue;
      if (middle < free) continue;
      free = middle + 11;
      if (!segment) {
        pen.fillStyle = css.quiet;
        pen.fillText("padding", SIDE - 8, middle);
        continue;
      }
      pen.fillStyle = css.text;
      pen.fillText(`${requests[segment.request].letter} p${segment.position + query % one.cols - segment.qStart}`, SIDE - 8, middle);
    }
    pen.restore();
  }

  const draftWords = (segment, place) => place >= 0 && fate(segment, place) ? `, ${FATES[fate(segment, place)][1]}` : "";

  function keyWords(one, segment, key) {
    const owner = one.isPadded ? segment : one.segments.find((s) => s.kvStart <= key && key < s.kvStart + s.kvLen);
    if (!owner || key < owner.kvStart) return { owner: null, text: "a padding key" };
    const place = key - owner.kvStart;
    // A dead row's own key stands at its last position, behind its frozen ones.
    const position = place < owner.cached ? place : owner.position + place - owner.cached;
    const id = place < owner.cached ? requests[owner.request].ids[position] : owner.ids[place - owner.cached];
    return { owner, text: `${requests[owner.request].letter} p${position} ${visible(id)}${draftWords(owner, place - owner.cached)}` };
  }

  function maskWords() {
    const one = steps[at], line = $("under-mask");
    if (!cursor) {
      line.textContent = "solid: new in this step · pale: cached before · dots: blocked. Point at a cell, or Tab here and use the arrows";
      return;
    }
    const { segment, start, stop } = seen(one, cursor.query);
    if (!segment) {
      line.textContent = "a padding query: its output is never read";
      return;
    }
    const position = segment.position + cursor.query % one.cols - segment.qStart;
    const number = cursor.query % one.cols - segment.qStart, token = visible(segment.ids[number]) + draftWords(segment, number);
    const { owner, text } = keyWords(one, segment, cursor.key);
    const may = cursor.key >= start && cursor.key < stop;
    let why = "may look: ";
    if (may) why += cursor.key < segment.kvStart + segment.cached ? "cached before this step" : "new in this step";
    else why = owner && owner.request === segment.request ? (cursor.key < start ? "blocked: behind this layer's window" : "blocked: it lies in its future") : owner ? "blocked: another request's" : "blocked: padding";
    line.textContent = `${requests[segment.request].letter} p${position} ${token} → ${text} · ${why}`;
  }

  function cellAt(event) {
    const one = steps[at], canvas = $("mask"), box = canvas.getBoundingClientRect();
    const [left, top] = canvas.dataset.origin.split(",").map(Number), [sx, sy] = canvas.dataset.cell.split(",").map(Number);
    const key = Math.floor((event.clientX - box.left - left) / sx), query = Math.floor((event.clientY - box.top - top) / sy);
    return key < 0 || query < 0 || key >= one.keys || query >= one.rows * one.cols ? null : { query, key };
  }

  function moveCursor(dq, dk) {
    const one = steps[at], queries = one.rows * one.cols;
    if (!cursor) {
      const { stop } = seen(one, queries - 1);
      cursor = { query: queries - 1, key: stop - 1 };
    } else {
      cursor = { query: Math.min(queries - 1, Math.max(0, cursor.query + dq)), key: Math.min(one.keys - 1, Math.max(0, cursor.key + dk)) };
    }
    const box = $("mask-box"), { sx, sy } = maskShape(one);
    const keep = (value, size, from, room) => value < from ? value : value + size > from + room ? value + size - room : from;
    box.scrollLeft = keep(cursor.key * sx, sx, box.scrollLeft, box.clientWidth - SIDE - 4);
    box.scrollTop = keep(cursor.query * sy, sy, box.scrollTop, box.clientHeight - HEAD - 4);
    drawMask();
  }

  // -- the step -----------------------------------------------------------------------------

  function drawStory() {
    const one = steps[at];
    $("cost").textContent = `${plural(one.kinds.reduce((a, b) => a + b), "token position")}, ${time(one.ms)}`;
    const story = data.stories[at].map((pieces) => element("p", "", ...pieces.map((piece) => typeof piece === "number" ? badge(piece) : piece)));
    $("story").replaceChildren(...story);
  }

  function drawSlots() {
    const one = steps[at], rows = [];
    const busy = new Map(one.segments.map((s) => [s.slot, s]));
    const by = new Map(one.standingBy.map((s) => [s[0], s]));
    for (let slot = 0; slot < Math.max(one.maxSeqs, ...[...busy.keys()].map((s) => s + 1)); slot++) {
      const segment = busy.get(slot), other = by.get(slot);
      const name = element("span", "quiet", String(slot));
      if (!segment && !other) {
        rows.push(element("div", "slot", name, element("span"), element("span", "quiet", "idle")));
        continue;
      }
      const request = requests[segment ? segment.request : other[1]];
      const made = segment ? outputs(segment) : other[2];
      const state = segment ? ["prefill", "decode", "dead"][segment.kind] : "not fed";
      const written = textOf(request.ids.slice(request.numPrompt, request.numPrompt + made));
      const text = element("span", "text", element("span", "quiet", ending(request.prompt, 40)), element("span", "out", ending(written, 70)));
      text.title = request.prompt;
      const bar = element("span", "bar", element("i"));
      bar.firstChild.style.width = `${100 * made / request.maxTokens}%`;
      bar.firstChild.style.background = shade(segment ? segment.request : other[1]);
      const line = element("div", `slot${segment && segment.kind === DEAD ? " is-dead" : ""}`, name, badge(segment ? segment.request : other[1]),
        element("span", segment && segment.kind === DEAD ? "warn" : "quiet", state), text, element("span", "far", `${made} / ${request.maxTokens}`), bar);
      line.dataset.slot = slot;
      rows.push(line);
    }
    $("slots").replaceChildren(...rows);
  }

  function drawWaiting() {
    const one = steps[at];
    $("how-many").textContent = number(one.waitingCount);
    const rows = one.waiting.slice(0, 12).map(([request, reason, since]) => {
      const [words, lasts] = reasons[reason], waited = numberOf(at) - since;
      const why = lasts && waited > 0 ? `${words} · ${plural(waited, "step")}` : words;
      return element("div", "wait", badge(request), element("span", "text", requests[request].prompt), element("span", "quiet", why));
    });
    if (one.waitingCount > rows.length) rows.push(element("div", "quiet", `and ${number(one.waitingCount - rows.length)} more`));
    if (!rows.length) rows.push(element("div", "quiet", "Nobody waits"));
    $("waiting").replaceChildren(...rows);
  }

  const AT_EACH_END = 40;

  function drawRow() {
    const one = steps[at];
    $("row-name").textContent = one.isPadded ? "Rectangle" : "Packed row";
    $("row-size").textContent = `[${one.rows}, ${one.cols}] · ${kindWords(one)}${one.budget ? ` · budget ${number(one.budget)}` : ""}`;
    const rows = [];
    for (let row = 0; row < one.rows; row++) {
      const line = element("div", "tensor-row");
      let column = 0;
      for (const segment of one.segments.filter((s) => s.row === row)) {
        padding(line, segment.qStart - column);
        line.append(...segmentCells(segment));
        column = segment.qStart + segment.qLen;
      }
      padding(line, one.cols - column);
      rows.push(line);
    }
    $("row").replaceChildren(...rows);
  }

  function padding(line, columns) {
    for (let n = 0; n < Math.min(columns, AT_EACH_END); n++) line.append(element("span", "token pad", element("b", "", "pad"), element("small", "", "–")));
    if (columns > AT_EACH_END) line.append(element("span", "more quiet", `and ${number(columns - AT_EACH_END)} more of padding`));
  }

  function segmentCells(segment, isWhole = false) {
    const cells = [], { ids } = segment;
    const cell = (id, place) => {
      const draft = fate(segment, place), isWaste = segment.kind === DEAD || (draft && draft !== "accepted");
      const text = element("b", "", (draft ? FATES[draft][0] : "") + visible(id));
      text.style.background = shade(segment.request);
      text.style.color = ink(segment.request);
      const one = element("span", `token${isWaste ? " is-dead" : ""}`, text, element("small", "", String(segment.position + place)));
      one.title = `${requests[segment.request].letter}, position ${segment.position + place}, token ${id}${draftWords(segment, place)}`;
      return one;
    };
    const isLong = !isWhole && ids.length > 2 * AT_EACH_END + 8;
    ids.forEach((id, place) => { if (!isLong || place < AT_EACH_END || place >= ids.length - AT_EACH_END) cells.push(cell(id, place)); });
    if (isLong) {
      const more = element("button", "more", `${number(ids.length - 2 * AT_EACH_END)} more`);
      more.addEventListener("click", () => {
        const all = segmentCells(segment, true);
        more.replaceWith(...all.slice(AT_EACH_END, ids.length - AT_EACH_END));
      });
      cells.splice(AT_EACH_END, 0, more);
    }
    const letter = badge(segment.request);
    letter.style.alignSelf = "flex-start";
    cells.unshift(letter);
    if (segment.sampled !== null) {
      const next = element("span", "next", visible(segment.sampled));
      if (segment.logprob !== null) next.append(element("small", "", percent(Math.exp(segment.logprob))));
      next.title = segment.top.map(([id, logprob]) => `${percent(Math.exp(logprob))}  ${visible(id)}`).join("\n");
      cells.push(element("span", "arrow", segment.kind === DEAD ? "→ thrown away" : "→"), next);
    }
    return cells;
  }

  // -- going about --------------------------------------------------------------------------

  function go(place) {
    at = Math.min(count - 1, Math.max(0, place));
    cursor = null;
    const box = $("timeline-box"), { px } = timelineScale();
    const left = at * px - box.scrollLeft, room = box.clientWidth - GUTTER - 10;
    if (left < 0 || left + px > room) box.scrollLeft = at * px - room / 2;
    draw();
    history.replaceState(null, "", `#step=${numberOf(at)}`);
  }

  function draw() {
    const slider = $("slider");
    slider.value = at;
    $("where").textContent = `step ${number(numberOf(at))} of ${number(numberOf(count - 1))}`;
    document.body.dataset.step = numberOf(at);
    drawTimeline();
    chartLegend();
    drawMask();
    drawStory();
    drawSlots();
    drawWaiting();
    drawRow();
  }

  function toEvent(direction) {
    const found = direction > 0 ? data.events.find((place) => place > at) : data.events.findLast((place) => place < at);
    if (found !== undefined) go(found);
  }

  function play() {
    if (player) {
      clearInterval(player);
      player = 0;
    } else {
      if (at === count - 1) go(0);
      player = setInterval(() => { if (at === count - 1) play(); else go(at + 1); }, 125);
    }
    $("play").textContent = player ? "❚❚" : "▶";
    $("play").setAttribute("aria-pressed", String(Boolean(player)));
  }

  function setZoom(level) {
    const { px } = timelineScale();
    zoom = level % 3;
    if (zoom && timelineScale().px === px) zoom = (zoom + 1) % 3;
    const after = timelineScale().px;
    drawTimeline();
    $("timeline-box").scrollLeft = at * after - $("timeline-box").clientWidth / 2;
    drawTimeline();
  }

  function setCells() {
    everyCell = !everyCell;
    $("cells").setAttribute("aria-pressed", String(everyCell));
    drawMask();
  }

  function nextLayer() {
    layer = (layer + 1) % data.windows.length;
    drawMask();
  }

  function setTheme(dark) {
    theme = dark ? 1 : 0;
    const names = ["ground", "panel", "text", "quiet", "line", "accent", "warn", "bad"];
    const style = getComputedStyle(document.documentElement);
    css = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  }

  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : prefersDark.matches;
  const repaint = () => { setTheme(isDark()); drawRequests(Math.min(requests.length, REQUESTS_SHOWN)); draw(); };
  $("theme").addEventListener("click", () => { document.documentElement.dataset.theme = isDark() ? "light" : "dark"; repaint(); });
  prefersDark.addEventListener("change", repaint);

  const KEYS = {
    "ArrowLeft": () => go(at - 1), "[": () => go(at - 1), "ArrowRight": () => go(at + 1), "]": () => go(at + 1),
    "{": () => toEvent(-1), "}": () => toEvent(1), "Home": () => go(0), "End": () => go(count - 1), "0": () => go(0), ".": () => go(count - 1),
    "PageUp": () => go(at - 10), "PageDown": () => go(at + 10), " ": play, "t": () => setZoom(zoom + 1), "z": setCells, "w": nextLayer,
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.target === $("mask") && event.key.startsWith("Arrow")) {
      moveCursor((event.key === "ArrowDown") - (event.key === "ArrowUp"), (event.key === "ArrowRight") - (event.key === "ArrowLeft"));
      event.preventDefault();
      return;
    }
    if (event.target instanceof HTMLButtonElement && event.key === " ") return;
    const act = KEYS[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  for (const [id, act] of Object.entries({ "to-first": () => go(0), "to-event-back": () => toEvent(-1), "back": () => go(at - 1), "play": play,
    "forth": () => go(at + 1), "to-event": () => toEvent(1), "to-last": () => go(count - 1), "zoom": () => setZoom(zoom + 1), "cells": setCells, "layer": nextLayer })) {
    $(id).addEventListener("click", act);
  }
  $("layer").hidden = data.windows.length < 2;
  $("slider").min = 0;
  $("slider").max = count - 1;
  $("slider").addEventListener("input", () => go(Number($("slider").value)));
  const timeline = $("timeline");
  timeline.addEventListener("pointerdown", (event) => { timeline.setPointerCapture(event.pointerId); go(placeAt(event)); });
  timeline.addEventListener("pointermove", (event) => { timelineWords(event); if (event.buttons & 1) go(placeAt(event)); });
  timeline.addEventListener("pointerleave", chartLegend);
  $("timeline-box").addEventListener("scroll", drawTimeline);
  const mask = $("mask");
  mask.addEventListener("pointermove", (event) => { cursor = cellAt(event); drawMask(); });
  mask.addEventListener("pointerleave", () => { cursor = null; drawMask(); });
  mask.addEventListener("focus", () => moveCursor(0, 0));
  $("mask-box").addEventListener("scroll", drawMask);
  let drawnWidth = 0;
  new ResizeObserver(() => {
    if ($("main").clientWidth === drawnWidth) return;
    drawnWidth = $("main").clientWidth;
    draw();
  }).observe($("main"));
  window.addEventListener("hashchange", () => go(placeOfHash()));

  function placeOfHash() {
    const found = /^#step=(\d+)$/.exec(location.hash);
    return found ? placeOf(Number(found[1])) : 0;
  }

  $("main").hidden = false;
  setTheme(isDark());
  drawHead();
  drawRequests(Math.min(requests.length, REQUESTS_SHOWN));
  go(placeOfHash());
  document.body.dataset.ready = "yes";
})();

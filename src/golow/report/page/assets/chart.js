// Lines with bands, on axes with round numbers; a legend whose entries switch them.
const FRAME = { wide: 640, high: 280, left: 62, right: 24, top: 10, bottom: 40 };
const SMALL_FRAME = { ...FRAME, wide: 360, high: 190 };
const NARROW_FRAME = { ...FRAME, wide: 360, high: 260 }; // of a phone, on which letters keep their size
const MOST_PLACES = 10;

function frameOf(block) {
  if (block.small) return SMALL_FRAME;
  return innerWidth < 480 ? NARROW_FRAME : FRAME;
}

function chartBlock(block) {
  const hidden = new Set();
  const place = element("div");
  const keyFor = (name) => [keyOf(block.lines.find((line) => line.name === name).colour)];
  const draw = () => place.replaceChildren(linesElement(block, block.lines.filter((line) => !hidden.has(line.name))));
  draw();
  const legend = switchesOf([...new Set(block.lines.map((line) => line.name))], hidden, keyFor, draw);
  return element("figure", { class: "charted" }, element("figcaption", {}, block.title), legend, place);
}

function linesElement(block, lines) {
  const frame = frameOf(block);
  const xs = lines.flatMap((line) => line.points.map((point) => point[0]));
  const ys = lines.flatMap((line) => [...line.points.map((point) => point[1]), ...line.band.flatMap((part) => part.slice(1))]);
  const across = scaleOf(xs, frame.left, frame.wide - frame.right, block.logAcross, false);
  const places = [...new Set(xs)].sort((a, b) => a - b);
  if (block.logAcross && places.length <= MOST_PLACES && places.every(Number.isInteger)) across.ticks = places; // such as batch sizes
  const up = scaleOf(ys, frame.high - frame.bottom, frame.top, block.logUp, block.fromZero);
  const label = `${block.title}: ${lines.map((line) => line.name).join(", ")}`;
  const made = drawn("svg", { class: block.small ? "chart small" : "chart", viewBox: `0 0 ${frame.wide} ${frame.high}`, role: "img", "aria-label": label });
  made.append(...frameElements(frame, across, up, block));
  // Earlier lines are wider, so that one that lies below another is still seen.
  const thick = lines.filter((line) => !line.plain).length;
  lines.forEach((line, number) => made.append(...lineElements(line, across, up, 1.8 + Math.min(6, 1.1 * Math.max(0, thick - 1 - number)))));
  if (block.mark) made.append(drawn("path", { d: `M${across.at(block.mark)} ${frame.top}V${frame.high - frame.bottom}`, stroke: "currentColor", "stroke-dasharray": "3 3" }));
  return made;
}

// The grid, the ticks' numbers, and what the axes are.
function frameElements(frame, across, up, block) {
  const made = [];
  const heights = tickTexts(up.ticks);
  for (const [tick, text] of block.ticks || up.ticks.map((tick, number) => [tick, heights[number]])) {
    made.push(drawn("path", { class: "grid", d: `M${frame.left} ${up.at(tick)}H${frame.wide - frame.right}` }));
    made.push(drawn("text", { x: frame.left - 6, y: up.at(tick) + 4, "text-anchor": "end" }, text));
  }
  const every = Math.ceil(across.ticks.length / (frame.wide / 60)); // no more than there is room for
  const ticks = across.ticks.filter((_, number) => number % every === 0);
  const texts = tickTexts(ticks);
  ticks.forEach((tick, number) => made.push(drawn("text", { x: across.at(tick), y: frame.high - frame.bottom + 18, "text-anchor": "middle" }, texts[number])));
  made.push(drawn("text", { x: frame.wide - frame.right, y: frame.high - 6, "text-anchor": "end" }, block.across));
  made.push(drawn("text", { x: 12, y: frame.high / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${frame.high / 2})` }, block.up));
  return made;
}

function lineElements(line, across, up, width) {
  const at = (x, y) => `${across.at(x).toFixed(1)} ${up.at(y).toFixed(1)}`;
  const made = [];
  if (line.band.length > 1) {
    const edge = [...line.band.map((part) => at(part[0], part[1])), ...[...line.band].reverse().map((part) => at(part[0], part[2]))];
    made.push(drawn("path", { d: `M${edge.join("L")}Z`, fill: line.colour, "fill-opacity": 0.14 }));
  }
  if (line.sizes) return dotElements(line, across, up);
  const path = { d: `M${line.points.map((point) => at(...point)).join("L")}`, stroke: line.colour, fill: "none", "stroke-width": line.plain ? 1.8 : width };
  if (line.points.length) made.push(drawn("path", line.dashed ? { ...path, "stroke-dasharray": "6 3" } : path));
  if (!line.plain) {
    line.points.forEach((point, number) => {
      const why = (line.marked || {})[number];
      if (line.points.length > 60 && !why) return;
      const dot = dotElement(...at(...point).split(" ").map(Number), line.colour, why);
      dot.append(drawn("title", {}, `${line.name}: ${tickText(point[0])}, ${Number(point[1].toPrecision(4))}${why ? `, ${why}` : ""}`));
      made.push(dot);
    });
  }
  return made;
}

function dotElements(line, across, up) {
  return line.points.map(([x, y], number) => {
    const fill = line.marked[number] ? { fill: "none" } : { fill: line.colour, "fill-opacity": 0.6 };
    const dot = drawn("circle", { cx: across.at(x).toFixed(1), cy: up.at(y).toFixed(1), r: line.sizes[number].toFixed(1), stroke: line.colour, ...fill });
    dot.append(drawn("title", {}, line.texts[number]));
    return dot;
  });
}

// A dot; one that is marked is hollow, and square if something was throttled.
function dotElement(x, y, colour, why) {
  const look = { stroke: colour, fill: why ? "var(--paper)" : colour };
  if (why && why.includes("throttled")) return drawn("rect", { x: x - 3, y: y - 3, width: 6, height: 6, ...look });
  return drawn("circle", { cx: x, cy: y, r: 3, ...look });
}

function scaleOf(values, from, to, log, fromZero) {
  let low = values.reduce((a, b) => Math.min(a, b), Infinity);
  let high = values.reduce((a, b) => Math.max(a, b), -Infinity);
  if (!(low <= high)) [low, high] = [log ? 1 : 0, log ? 10 : 1];
  if (fromZero && !log) low = Math.min(0, low);
  if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - (Math.abs(low) || 1) / 10, high + (Math.abs(high) || 1) / 10];
  const turn = log ? Math.log10 : (value) => value;
  const at = (value) => from + ((turn(value) - turn(low)) / (turn(high) - turn(low))) * (to - from);
  return { at, ticks: log ? decades(low, high) : roundTicks(low, high) };
}

function roundTicks(low, high) {
  const rough = (high - low) / 5;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * size >= rough) * size;
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high * (1 + 1e-9) + 1e-12; tick += step) ticks.push(Math.abs(tick) < step / 1e6 ? 0 : tick);
  return ticks;
}

// Powers of ten; where there are fewer than three, also 2 and 5 times them.
function decades(low, high) {
  const ticks = [];
  for (const factors of [[1], [1, 2, 5]]) {
    ticks.length = 0;
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high) + 1e-9; power += 1) {
      ticks.push(...factors.map((factor) => factor * 10 ** power).filter((tick) => tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9)));
    }
    if (ticks.length >= 3) break;
  }
  return ticks;
}

// One style for the numbers of all axes: whole numbers up to 9,999 with a comma, from 10k on with a
// prefix, and on an axis with equal steps as many decimals for one as for the other.
const PREFIXES = [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]];

function tickTexts(ticks) {
  const most = ticks.reduce((a, b) => Math.max(a, Math.abs(b)), 0);
  const [step, last] = [ticks[1] - ticks[0], ticks[ticks.length - 1] - ticks[ticks.length - 2]];
  if (ticks.length < 2 || Math.abs(step - last) > 1e-6 * Math.abs(step) || (most < 1e-3 && most > 0)) return ticks.map(tickText);
  const [prefix, factor] = most >= 1e4 ? PREFIXES.find(([, one]) => most >= one) : ["", 1];
  const isWhole = (number) => Math.abs(number - Math.round(number)) < 1e-6 * Math.max(1, Math.abs(number));
  const decimals = [0, 1, 2, 3, 4, 5].find((count) => ticks.every((tick) => isWhole((tick / factor) * 10 ** count))) || 0;
  return ticks.map((tick) => (tick === 0 ? "0" : numberText(tick / factor, decimals) + prefix));
}

function tickText(value) {
  const size = Math.abs(value);
  if (size !== 0 && size < 1e-3) return value.toExponential(0);
  const [prefix, factor] = (size >= 1e4 && PREFIXES.find(([, one]) => size >= one)) || ["", 1];
  return numberText(Number((value / factor).toPrecision(4))) + prefix;
}

function numberText(value, decimals) {
  const digits = decimals === undefined ? { maximumFractionDigits: 6 } : { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
  return value.toLocaleString("en", digits);
}

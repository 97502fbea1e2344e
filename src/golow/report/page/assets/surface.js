// Surfaces over two axes, drawn as they are seen from one side; dragging and the arrow keys turn them.
const SCENE = { wide: 460, high: 400, size: 230, step: 0.12 };

function surfaceBlock(block) {
  const [view, hidden] = [{ turn: -0.7, tilt: 0.45 }, new Set()];
  const label = `${block.title} over ${block.axes[0]} and ${block.axes[1]}; the arrow keys turn it`;
  const place = element("div", { class: "scene", tabindex: "0", role: "group", "aria-label": label });
  const draw = () => place.replaceChildren(sceneElement(block, view, hidden));
  const turn = (turned, tilted) => {
    view.turn += turned;
    view.tilt = Math.max(0.05, Math.min(1.5, view.tilt + tilted));
    draw();
  };
  const keys = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  place.addEventListener("keydown", (event) => {
    if (!keys[event.key]) return;
    event.preventDefault();
    turn(...keys[event.key].map((way) => way * SCENE.step));
  });
  place.addEventListener("pointerdown", (event) => place.setPointerCapture(event.pointerId));
  place.addEventListener("pointermove", (event) => { if (event.buttons) turn(event.movementX / 120, event.movementY / 120); });
  const colours = new Map(block.levels.map((level) => [level.name, level.colour]));
  draw();
  return element("figure", {}, element("figcaption", {}, block.title), switchesOf([...colours.keys()], hidden, (name) => [keyOf(colours.get(name))], draw), place);
}

function sceneElement(block, view, hidden) {
  const label = `${block.title}: ${block.levels.filter((level) => !hidden.has(level.name)).map((level) => level.name).join(", ")}`;
  const made = drawn("svg", { class: "chart", viewBox: `0 0 ${SCENE.wide} ${SCENE.high}`, role: "img", "aria-label": label });
  const heights = block.levels.flatMap((level) => level.values.flat().map((pair) => pair[0])).filter((value) => value !== null);
  const at = { across: unitOf(block.places[0], true), deep: unitOf(block.places[1], true), up: unitOf([...heights, ...block.ticks.map((tick) => tick[0])], block.logUp) };
  const seen = (x, y, z) => seenFrom(view, x - 0.5, y - 0.5, z - 0.5);
  made.append(...floorElements(block, at, seen));
  const pieces = block.levels.filter((level) => !hidden.has(level.name)).flatMap((level) => piecesOf(block, level, at, seen));
  pieces.sort((a, b) => a.depth - b.depth);
  made.append(...pieces.map((piece) => piece.drawn));
  return made;
}

// A number's place between the least and the most, from 0 to 1.
function unitOf(values, log) {
  const turn = log ? Math.log : (value) => value;
  const [low, high] = [values.reduce((a, b) => Math.min(a, b), Infinity), values.reduce((a, b) => Math.max(a, b), -Infinity)].map(turn);
  return (value) => (turn(value) - low) / (high - low || 1);
}

function seenFrom(view, x, y, z) {
  const [right, back] = [x * Math.cos(view.turn) - y * Math.sin(view.turn), x * Math.sin(view.turn) + y * Math.cos(view.turn)];
  const up = back * Math.sin(view.tilt) + z * Math.cos(view.tilt);
  return { x: SCENE.wide / 2 + right * SCENE.size, y: SCENE.high / 2 - up * SCENE.size, depth: z * Math.sin(view.tilt) - back * Math.cos(view.tilt) };
}

// A quadrangle between four neighbours, and a dot at each cell that was measured.
function piecesOf(block, level, at, seen) {
  const made = [];
  const corner = (row, column) => {
    const value = (level.values[row] || [])[column];
    return value && value[0] !== null ? seen(at.across(block.places[0][column]), at.deep(block.places[1][row]), at.up(value[0])) : null;
  };
  block.places[1].forEach((deep, row) => block.places[0].forEach((across, column) => {
    const own = corner(row, column);
    if (!own) return;
    const dot = drawn("circle", { cx: own.x.toFixed(1), cy: own.y.toFixed(1), r: 2.5, fill: level.colour, stroke: "var(--paper)", "stroke-width": 0.6 });
    dot.append(drawn("title", {}, `${level.name}: ${block.axes[0]} ${across}, ${block.axes[1]} ${deep}: ${level.values[row][column][1]}`));
    made.push({ depth: own.depth + 0.01, drawn: dot });
    const all = [own, corner(row, column + 1), corner(row + 1, column + 1), corner(row + 1, column)];
    if (!all.every(Boolean)) return;
    const d = `M${all.map((one) => `${one.x.toFixed(1)} ${one.y.toFixed(1)}`).join("L")}Z`;
    made.push({ depth: all.reduce((sum, one) => sum + one.depth, 0) / 4, drawn: drawn("path", { d, fill: level.colour, "fill-opacity": 0.6, stroke: "var(--paper)", "stroke-width": 0.5 }) });
  }));
  return made;
}

// The floor with the numbers of both axes along its front edges, and the heights at its left corner.
function floorElements(block, at, seen) {
  const corners = [[0, 0], [1, 0], [1, 1], [0, 1]].map(([x, y]) => ({ x, y, at: seen(x, y, 0) }));
  const front = corners.reduce((a, b) => (b.at.depth > a.at.depth ? b : a));
  const leftmost = corners.reduce((a, b) => (b.at.x < a.at.x ? b : a));
  const made = [drawn("path", { d: `M${corners.map((one) => `${one.at.x.toFixed(1)} ${one.at.y.toFixed(1)}`).join("L")}Z`, fill: "none", stroke: "var(--soft)" })];
  const write = (point, text, anchor, more = {}) => made.push(drawn("text", { x: point.x.toFixed(1), y: point.y.toFixed(1), "text-anchor": anchor, ...more }, text));
  const along = (places, unit, point, name) => {
    places.forEach((place) => {
      const shown = point(unit(place));
      write({ x: shown.x, y: shown.y + 16 }, tickText(place), "middle");
    });
    const middle = point(0.5);
    const side = middle.x < SCENE.wide / 2 ? -50 : 50;
    write({ x: middle.x + side, y: Math.min(SCENE.high - 4, middle.y + 36) }, name, "middle", { "font-weight": 600 });
  };
  along(block.places[0], at.across, (share) => seen(share, front.y, 0), block.axes[0]);
  along(block.places[1], at.deep, (share) => seen(front.x, share, 0), block.axes[1]);
  const [foot, top] = [seen(leftmost.x, leftmost.y, 0), seen(leftmost.x, leftmost.y, 1)];
  made.push(drawn("path", { d: `M${foot.x.toFixed(1)} ${foot.y.toFixed(1)}L${top.x.toFixed(1)} ${top.y.toFixed(1)}`, stroke: "var(--soft)" }));
  for (const [tick, text] of block.ticks) {
    const point = seen(leftmost.x, leftmost.y, at.up(tick));
    write({ x: point.x - 6, y: point.y + 4 }, text, "end");
  }
  write({ x: Math.max(4, top.x - 40), y: Math.max(12, top.y - 12) }, block.axes[2], "start", { "font-weight": 600 });
  return made;
}

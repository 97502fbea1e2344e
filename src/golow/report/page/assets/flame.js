// Boxes below one another: a stack of calls, the outermost on top.
const FLAME = { wide: 560, row: 18, letter: 6.3 };

function flameBlock(block) {
  const high = block.rows.length * FLAME.row;
  const label = `${block.title}: ${block.rows.length} frames, of which the last is ${block.rows[block.rows.length - 1].map((box) => box.text).join("; ")}`;
  const made = drawn("svg", { class: "chart flame", viewBox: `0 0 ${FLAME.wide} ${high}`, role: "img", "aria-label": label });
  block.rows.forEach((boxes, row) => boxes.forEach((box) => made.append(flameBox(box, row * FLAME.row))));
  return element("figure", {}, element("figcaption", {}, block.title), made);
}

function flameBox(box, y) {
  const [x, width] = [box.from * FLAME.wide, (box.to - box.from) * FLAME.wide];
  const made = drawn("g");
  made.append(drawn("title", {}, box.text));
  made.append(drawn("rect", { x, y, width: Math.max(0.5, width - 1), height: FLAME.row - 1, fill: box.colour }));
  const fits = Math.floor((width - 6) / FLAME.letter);
  if (fits > 3) {
    const said = box.text.length > fits ? `${box.text.slice(0, fits - 2)}..` : box.text;
    made.append(drawn("text", { x: x + 4, y: y + FLAME.row - 5 }, said));
  }
  return made;
}

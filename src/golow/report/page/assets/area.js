// Parts on top of one another over time, each to switch; a value holds until the next moment.
function areaBlock(block) {
  const [hidden, place] = [new Set(), element("div")];
  const colours = new Map(block.parts.map((part) => [part.name, part.colour]));
  const draw = () => place.replaceChildren(areaElement(block, block.parts.filter((part) => !hidden.has(part.name))));
  draw();
  return element("figure", {}, element("figcaption", {}, block.title), switchesOf([...colours.keys()], hidden, (name) => [keyOf(colours.get(name))], draw), place);
}

// The peak and the limit are of all parts, and drawn only with all of them.
function areaElement(block, parts) {
  const frame = frameOf(block);
  const { wide, high, left, right, top, bottom } = frame;
  const [mark, limit] = parts.length === block.parts.length ? [block.mark, block.limit] : [null, null];
  const heights = block.moments.map(() => 0);
  const tops = parts.map((part) => part.values.map((value, number) => (heights[number] += value)));
  const most = [...heights, limit ? limit[0] : 0, mark ? mark[1] : 0].reduce((a, b) => Math.max(a, b), 0);
  const across = scaleOf(block.moments, left, wide - right, false, false);
  const up = scaleOf([0, most * 1.1], high - bottom, top, false, true);
  const label = [block.title, ...[mark && mark[2], limit && limit[1]].filter(Boolean)].join("; ");
  const made = drawn("svg", { class: "chart", viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": label });
  made.append(...frameElements(frame, across, up, block));
  let under = block.moments.map(() => 0);
  parts.forEach((part, number) => {
    const edge = [...stepsOf(block.moments, tops[number], across, up), ...stepsOf(block.moments, under, across, up).reverse()];
    const piece = drawn("path", { d: `M${edge.join("L")}Z`, fill: part.colour });
    piece.append(drawn("title", {}, part.name));
    made.append(piece);
    under = tops[number];
  });
  if (limit) {
    made.append(drawn("path", { d: `M${left} ${up.at(limit[0])}H${wide - right}`, stroke: "currentColor", "stroke-dasharray": "5 3" }));
    made.append(drawn("text", { x: wide - right, y: up.at(limit[0]) - 4, "text-anchor": "end" }, limit[1]));
  }
  if (mark) {
    const [x, y] = [across.at(mark[0]), up.at(mark[1])];
    made.append(drawn("circle", { cx: x, cy: y, r: 3.5, fill: "currentColor" }));
    made.append(drawn("text", { x: x < wide / 2 ? x + 6 : x - 6, y: y - 6, "text-anchor": x < wide / 2 ? "start" : "end" }, mark[2]));
  }
  return made;
}

function stepsOf(moments, values, across, up) {
  return moments.flatMap((moment, number) => {
    const at = `${across.at(moment).toFixed(1)} `;
    return number ? [`${at}${up.at(values[number - 1]).toFixed(1)}`, `${at}${up.at(values[number]).toFixed(1)}`] : [`${at}${up.at(values[0]).toFixed(1)}`];
  });
}

// Parts on top of one another over time; each value holds until the next moment.
function areaBlock(block) {
  const frame = frameOf(block);
  const { wide, high, left, right, top, bottom } = frame;
  const heights = block.moments.map(() => 0);
  const tops = block.parts.map((part) => part.values.map((value, number) => (heights[number] += value)));
  const most = Math.max(...heights, block.limit ? block.limit[0] : 0, block.mark ? block.mark[1] : 0);
  const across = scaleOf(block.moments, left, wide - right, false, false);
  const up = scaleOf([0, most * 1.1], high - bottom, top, false, true);
  const made = drawn("svg", { class: "chart", viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": areaLabel(block) });
  made.append(...frameElements(frame, across, up, block));
  let under = block.moments.map(() => 0);
  block.parts.forEach((part, place) => {
    const edge = [...stepsOf(block.moments, tops[place], across, up), ...stepsOf(block.moments, under, across, up).reverse()];
    const piece = drawn("path", { d: `M${edge.join("L")}Z`, fill: part.colour });
    piece.append(drawn("title", {}, part.name));
    made.append(piece);
    under = tops[place];
  });
  if (block.limit) {
    made.append(drawn("path", { d: `M${left} ${up.at(block.limit[0])}H${wide - right}`, stroke: "currentColor", "stroke-dasharray": "5 3" }));
    made.append(drawn("text", { x: wide - right, y: up.at(block.limit[0]) - 4, "text-anchor": "end" }, block.limit[1]));
  }
  if (block.mark) {
    const [x, y] = [across.at(block.mark[0]), up.at(block.mark[1])];
    made.append(drawn("circle", { cx: x, cy: y, r: 3.5, fill: "currentColor" }));
    made.append(drawn("text", { x: x < wide / 2 ? x + 6 : x - 6, y: y - 6, "text-anchor": x < wide / 2 ? "start" : "end" }, block.mark[2]));
  }
  const legend = element("div", { class: "note" }, ...block.parts.map((part) => element("span", { class: "named" }, keyOf(part.colour), part.name)));
  return element("figure", {}, element("figcaption", {}, block.title), legend, made);
}

function areaLabel(block) {
  return [block.title, ...(block.mark ? [block.mark[2]] : []), ...(block.limit ? [block.limit[1]] : [])].join("; ");
}

function stepsOf(moments, values, across, up) {
  return moments.flatMap((moment, number) => {
    const at = `${across.at(moment).toFixed(1)} `;
    return number ? [`${at}${up.at(values[number - 1]).toFixed(1)}`, `${at}${up.at(values[number]).toFixed(1)}`] : [`${at}${up.at(values[0]).toFixed(1)}`];
  });
}

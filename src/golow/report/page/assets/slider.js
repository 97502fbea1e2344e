// Total time over iterations, and a slider that says which level to use.
function totalOf(level, iterations) {
  const share = Math.min(1, (iterations - 1) / (Math.max(2, level.settled_after) - 1));
  return level.fixed + level.first + level.steady * (iterations - 1) + level.settling * share;
}

function sliderBlock(block) {
  const input = element("input", { type: "range", min: "0", max: "7", step: "0.05", value: "3", "aria-label": `Iterations, ${block.title}` });
  const answer = element("p", { class: "lead", role: "status" });
  const place = element("div");
  const counts = Array.from({ length: 71 }, (_, number) => Math.round(10 ** (number / 10)));
  const lines = block.levels.map((level) => ({
    name: level.name, colour: level.colour, dashed: level.name.includes(":"), plain: true, marked: [], band: [],
    points: counts.map((count) => [count, totalOf(level, count)]),
  }));
  const legend = element("div", { class: "legend" }, ...lines.map((line) => element("span", {}, keyOf(line.colour), line.name)));
  function show() {
    const iterations = Math.round(10 ** Number(input.value));
    const best = block.levels.reduce((a, b) => (totalOf(b, iterations) < totalOf(a, iterations) ? b : a));
    const number = iterations.toLocaleString("en");
    const text = `For ${number} iteration${iterations === 1 ? "" : "s"} use ${best.name}: ${secondsText(totalOf(best, iterations))} in all.`;
    answer.textContent = text;
    input.setAttribute("aria-valuetext", text);
    const chart = { title: `${block.title}: total time`, across: "iterations", up: "seconds", logAcross: true, logUp: true, mark: iterations };
    place.replaceChildren(linesElement(chart, lines));
  }
  input.addEventListener("input", show);
  show();
  return element("figure", {}, element("figcaption", {}, block.title), answer, input, legend, place);
}

// Puts the sections together. Each kind of block has one function.
const BLOCKS = {
  paragraph: (block) => element("p", { class: block.style }, block.text),
  code: (block) => element("pre", { tabindex: "0" }, element("code", {}, block.text)),
  facts: (block) => element("dl", {}, ...block.pairs.filter((pair) => pair[1]).flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)])),
  table: tableBlock,
  chart: chartBlock,
  curves: curvesBlock,
  surface: surfaceBlock,
  choice: choiceBlock,
  area: areaBlock,
  flame: flameBlock,
  slider: sliderBlock,
  pictures: picturesBlock,
  folded: (block) => element("details", {}, element("summary", {}, block.title), ...block.blocks.map(blockElement)),
  beside: (block) => element("div", { class: "beside" }, ...block.blocks.map(blockElement)),
};

// One of several blocks; it is made when it is chosen.
function choiceBlock(block) {
  const choice = element("select", { "aria-label": block.title }, ...block.options.map((option, number) => element("option", { value: number }, option.name)));
  const place = element("div");
  const show = () => place.replaceChildren(blockElement(block.options[Number(choice.value)].block));
  choice.value = String(block.first);
  choice.addEventListener("change", show);
  show();
  return element("div", { class: "choice" }, element("label", { class: "filter" }, `${block.title}, `, choice), place);
}

function blockElement(block) {
  return BLOCKS[block.kind](block);
}

function sectionElement(section) {
  const made = element("section", { id: section.id, "aria-labelledby": `${section.id}-title` });
  if (section.of) made.append(element("p", { class: "of" }, section.of));
  made.append(element("h2", { id: `${section.id}-title` }, section.title));
  made.append(...section.blocks.map(blockElement));
  return made;
}

function saveRecord() {
  const data = new Blob([document.getElementById("golow-record").textContent], { type: "application/json" });
  const link = element("a", { href: URL.createObjectURL(data), download: "golow-record.json" });
  link.click();
  URL.revokeObjectURL(link.href);
}

const view = JSON.parse(document.getElementById("golow-view").textContent);
const PARTS = new Map(view.sections.flatMap((section) => Object.entries(section.parts || {}))); // that cells open
if (view.kinds) document.getElementById("brand").textContent += `: ${view.kinds}`;
document.getElementById("title").textContent = view.title;
document.getElementById("about").textContent = view.about;
document.getElementById("nav").append(...view.sections.map((section) => element("a", { href: `#${section.id}`, ...(section.of ? { class: "first" } : {}) }, section.title)));
document.getElementById("main").replaceChildren(...view.sections.map(sectionElement), peekPlace);
document.getElementById("save").addEventListener("click", saveRecord);
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
document.documentElement.dataset.ready = "yes";

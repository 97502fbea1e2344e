// Tables: sorted by a click on a title, filtered by words, with rows that open: to what stands
// behind them, or, in a tree, to the rows below them.
const PAGE_ROWS = 200; // more are shown when asked for, so that a table of any length opens at once

function tableBlock(block) {
  const state = { column: -1, falling: false, words: "", all: false, open: new Set(block.opened), parts: new Map() };
  const body = element("tbody");
  const heads = block.columns.map((column, number) => {
    const button = element("button", { type: "button", ...(column.title ? {} : { "aria-label": "what" }) }, ...(column.key ? [keyOf(column.key)] : []), column.title);
    button.addEventListener("click", () => {
      state.falling = state.column === number && !state.falling;
      state.column = number;
      show();
    });
    return element("th", { scope: "col", class: column.number ? "number" : "" }, button);
  });
  const count = element("span", { role: "status" });
  const rows = block.rows.map((cells, number) => ({ cells, number, text: cells.map((c) => c.text).join("\n").toLowerCase() }));
  const below = new Map(); // a tree's rows, by the number of their parent
  (block.parents || rows.map(() => null)).forEach((parent, number) => {
    if (!below.has(parent)) below.set(parent, []);
    below.get(parent).push(rows[number]);
  });
  const more = element("button", { type: "button" }, "Show all rows");
  more.addEventListener("click", () => { state.all = true; show(); });

  function inOrder(some) {
    if (state.column < 0) return some;
    return [...some].sort((a, b) => ordered(a.cells[state.column], b.cells[state.column], state.falling));
  }

  // The rows below a parent and, of those that are open, what is below them.
  function opened(parent, depth) {
    return inOrder(below.get(parent) || []).flatMap((row) => {
      row.depth = depth;
      return [row, ...(below.has(row.number) && state.open.has(row.number) ? opened(row.number, depth + 1) : [])];
    });
  }

  function show() {
    const words = state.words.split(/\s+/).filter(Boolean);
    const found = words.length ? inOrder(rows.filter((row) => words.every((word) => row.text.includes(word)))) : opened(null, 0);
    const shown = state.all ? found : found.slice(0, PAGE_ROWS);
    body.replaceChildren(...shown.flatMap((row) => rowElements(row)));
    heads.forEach((head, number) => {
      if (number === state.column) head.setAttribute("aria-sort", state.falling ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    count.textContent = found.length === rows.length ? `${rows.length} rows` : `${found.length} of ${rows.length} rows`;
    more.hidden = shown.length === found.length;
  }

  function rowElements(row) {
    const detail = block.details[row.number] || [];
    const cells = row.cells.map((cell, place) => cellElement(cell, block.columns[place], place === 0));
    const made = [element("tr", {}, ...cells)];
    row.cells.forEach((cell, place) => { if (PARTS.has(cell.opens)) openerOf(cells[place], cell, row, made); });
    if (row.depth && !state.words) cells[0].style.paddingLeft = `${0.75 + row.depth * 1.1}rem`;
    if (!detail.length && !below.has(row.number)) return made;
    const opener = element("button", { type: "button", class: "opener", "aria-expanded": state.open.has(row.number), "data-row": row.number });
    opener.append(cells[0].lastChild);
    cells[0].append(opener);
    opener.addEventListener("click", () => {
      if (!state.open.delete(row.number)) state.open.add(row.number);
      show();
      const again = body.querySelector(`.opener[data-row="${row.number}"]`);
      if (again) again.focus();
    });
    if (detail.length && state.open.has(row.number)) {
      made.push(element("tr", { class: "details" }, element("td", { colspan: row.cells.length }, element("div", { class: "opened" }, ...detail.map(blockElement)))));
    }
    return made;
  }

  // A cell that opens a part of the page below its row.
  function openerOf(place, cell, row, made) {
    const open = state.parts.get(row.number) === cell.opens;
    const opener = element("button", { type: "button", class: "cell", "aria-expanded": open, "data-opens": cell.opens }, ...place.childNodes);
    if (!opener.textContent.trim()) opener.setAttribute("aria-label", "not measured");
    place.append(opener);
    opener.addEventListener("click", () => {
      if (open) state.parts.delete(row.number);
      else state.parts.set(row.number, cell.opens);
      show();
      body.querySelector(`[data-opens="${cell.opens}"]`).focus();
    });
    if (open) made.push(element("tr", { class: "details" }, element("td", { colspan: row.cells.length }, element("div", { class: "opened" }, ...PARTS.get(cell.opens).map(blockElement)))));
  }

  show();
  const whole = element("div", { class: `tabled${block.cards ? " cards" : ""}${block.columns.length < 6 ? " few" : ""}` });
  const head = element("div", { class: "head" }, element("p", { class: "caption" }, block.caption));
  whole.append(head);
  if (rows.length > 10 || (block.filtered && rows.length > 1)) {
    const search = element("input", { type: "search", placeholder: "Filter", "aria-label": `Filter: ${block.caption}` });
    search.addEventListener("input", () => { state.words = search.value.toLowerCase().trim(); show(); });
    head.append(element("div", { class: "filter" }, search, count, more));
  }
  const table = element("table", { "aria-label": block.caption, ...(block.map ? { class: "map" } : {}) }, element("thead", {}, element("tr", {}, ...heads)), body);
  whole.append(element("div", { class: rows.length > 15 ? "scroll tall" : "scroll", tabindex: "0", role: "group", "aria-label": block.caption }, table));
  return whole;
}

function ordered(a, b, falling) {
  const sign = falling ? -1 : 1;
  const [x, y] = [a.order, b.order];
  if (x !== null && y !== null) return sign * (x - y);
  if (x === null && y === null) return sign * a.text.localeCompare(b.text, "en", { numeric: true });
  return x === null ? 1 : -1; // what has no number is last either way
}

function cellElement(cell, column, first) {
  const made = element(first ? "th" : "td", { class: [column.number ? "number" : "", cell.word || ""].join(" ").trim() });
  if (first) made.setAttribute("scope", "row");
  else made.dataset.title = column.title; // what a card calls it
  if (column.lead) made.classList.add("lead");
  if (!cell.bar && ["", "-"].includes(cell.text)) made.classList.add("none");
  if (!column.number && cell.text.length > 40) made.classList.add("long");
  if (cell.bar) {
    made.classList.add("bars");
    const bar = barElement(cell.bar, cell.colour);
    made.append(cell.peek ? peekElement(bar, cell.peek) : bar, cell.text);
    return made;
  }
  if (cell.stack) { made.append(stackElement(cell.stack)); return made; }
  if (cell.colour) made.append(keyOf(cell.colour));
  if (cell.heat) made.style.background = `rgba(var(--heat), ${(0.45 * cell.heat).toFixed(3)})`;
  for (const side of cell.edges || []) made.classList.add(`edge-${side}`);
  const [head, ...rest] = column.lead ? cell.text.split("\n") : [cell.text];
  made.append(head, ...(rest.length ? [element("span", { class: "ends" }, `\n${rest.join("\n")}`)] : []));
  return made;
}

function barElement(bar, colour) {
  const [wide, high] = [144, 20];
  const x = (share) => (2 + share * (wide - 4)).toFixed(1);
  const made = drawn("svg", { class: "bar", viewBox: `0 0 ${wide} ${high}`, preserveAspectRatio: "none", role: "img", "aria-label": bar.text });
  const line = { stroke: "currentColor", fill: "none", "vector-effect": "non-scaling-stroke" }; // a card's bar is wider
  made.append(drawn("title", {}, bar.text));
  made.append(drawn("rect", { x: 2, y: 5, height: 10, width: Math.max(1, bar.value * (wide - 4)), rx: 1.5, fill: colour, "fill-opacity": 0.55 }));
  if (bar.high > bar.low) {
    made.append(drawn("path", { d: `M${x(bar.low)} 10H${x(bar.high)}M${x(bar.low)} 6V14M${x(bar.high)} 6V14`, ...line, "stroke-width": 1.3 }));
  }
  if (bar.limit) made.append(drawn("path", { d: `M${x(bar.limit)} 1V19`, ...line, "stroke-dasharray": "2 2" }));
  return made;
}

function stackElement(parts) {
  const wide = 288;
  const text = parts.map((part) => part.text).join("; ");
  const made = drawn("svg", { class: "stack", viewBox: `0 0 ${wide} 20`, role: "img", "aria-label": text });
  let from = 0;
  for (const part of parts) {
    const piece = drawn("rect", { x: from, y: 4, height: 12, width: part.share * wide, fill: part.colour });
    piece.append(drawn("title", {}, part.text));
    made.append(piece);
    from += part.share * wide;
  }
  return made;
}

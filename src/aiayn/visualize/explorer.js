const data = JSON.parse(document.getElementById("data").textContent);
const MEAN = -1; // instead of a head's number: the mean of all heads of a layer
const MARKS = { __proto__: null, "<s>": "start", "</s>": "end", "▁": "space" }; // tokens that are not words

/* What is shown. Layers and heads count from 0; `focus` is the token looked at: {side: "queries" | "keys", index}. */
const OPENING = { tab: "cross", heads: [null, null], active: 0, view: "lines", focus: null, held: false };
const state = { ...OPENING };

const get = (id) => document.getElementById(id);
const all = (selector) => [...document.querySelectorAll(selector)];
const dark = matchMedia("(prefers-color-scheme: dark)");
const limited = (value, low, high) => Math.min(Math.max(value, low), high);
const bytes = (base64) => Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));

for (const kind of Object.values(data.kinds)) kind.bytes = bytes(kind.weights);

const tabs = all("[role=tab]");
const thumbs = all(".thumb");
const panels = all(".panel").map((root) => ({ root, body: root.querySelector(".body"), weights: [], lines: [], tokens: {} }));

const kindNow = () => data.kinds[state.tab] ?? data.kinds.cross;
const shownSlots = () => (state.heads[1] ? [0, 1] : [0]);
const shownThumbs = () => thumbs.filter((thumb) => !thumb.hidden); // encoder and decoder may have other layers
const nameOf = ({ layer, head }) => `layer ${layer + 1}, ${head === MEAN ? "mean of heads" : `head ${head + 1}`}`;

/* One head's weights as rows of numbers between 0 and 1: rows[query][key]. */
function weightsOf(kind, { layer, head }) {
  const [n, m] = [kind.queries.length, kind.keys.length];
  const heads = head === MEAN ? [...Array(kind.heads).keys()] : [head];
  const weight = (query, key) =>
    heads.reduce((sum, h) => sum + kind.bytes[((layer * kind.heads + h) * n + query) * m + key], 0) / heads.length / 255;
  return Array.from({ length: n }, (_, query) => Array.from({ length: m }, (_, key) => weight(query, key)));
}

/* The head of the later layers with the largest weights on words, without the end mark: a good one to begin with. */
function sharpest(kind) {
  let best = { sharpness: -1 };
  for (let layer = Math.floor(kind.layers / 2); layer < kind.layers; layer++)
    for (let head = 0; head < kind.heads; head++) {
      const rows = weightsOf(kind, { layer, head });
      const sharpness = rows.reduce((sum, row) => sum + Math.max(...row.slice(0, -1), 0), 0);
      if (sharpness > best.sharpness) best = { sharpness, shown: { layer, head } };
    }
  return best.shown;
}

/* The style sheet's colours for canvases, as [red, green, blue]. */
function colours() {
  const style = getComputedStyle(document.documentElement);
  return ["--sheet-rgb", "--first-rgb", "--second-rgb"].map((name) => style.getPropertyValue(name).trim().split(/\s+/).map(Number));
}

/* Paints rows of values, 1 in the ink and -1 in the other one. One cell is one pixel. */
function paint(canvas, rows, ink, other, scale) {
  const [paper] = colours();
  canvas.width = rows[0].length;
  canvas.height = rows.length;
  const image = new ImageData(canvas.width, canvas.height);
  let at = 0;
  for (const value of rows.flat()) {
    const target = value < 0 ? other : ink;
    for (let i = 0; i < 3; i++) image.data[at++] = paper[i] + (target[i] - paper[i]) * scale(value);
    image.data[at++] = 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

/* The overview, the tabs and the controls show what is chosen. */

function paintOverview() {
  const kind = kindNow();
  const inks = colours().slice(1);
  for (const part of all("#overview [data-layer]")) part.hidden = part.dataset.layer >= kind.layers;
  for (const thumb of shownThumbs()) {
    const head = headOf(thumb);
    const slots = shownSlots().filter((slot) => nameOf(state.heads[slot]) === nameOf(head));
    const which = slots.map((slot) => ["first", "second"][slot]);
    ["first", "second"].forEach((name) => thumb.classList.toggle(name, which.includes(name)));
    thumb.setAttribute("aria-pressed", String(slots.length > 0));
    thumb.setAttribute("aria-label", nameOf(head) + (which.length ? `, shown as ${which.join(" and ")} head` : ""));
    thumb.title = nameOf(head);
    thumb.tabIndex = slots.includes(state.active) ? 0 : -1;
    thumb.style.aspectRatio = limited(kind.keys.length / kind.queries.length, 0.6, 1.6);
    thumb.firstChild.style.imageRendering = kind.keys.length > LONG ? "auto" : "pixelated"; // shrunk, or enlarged
    const rows = weightsOf(kind, head);
    const largest = rows.flat().reduce((one, two) => Math.max(one, two), 1e-9);
    paint(thumb.firstChild, rows, inks[slots[0] ?? 0], null, (weight) => strength(weight / largest));
  }
  get("overview-hint").textContent = state.heads[1]
    ? `A click here changes the ${state.active ? "second" : "first"} head.`
    : "Rows are layers, columns are heads. Click on one to enlarge it.";
}

function showControls() {
  const press = (button, on) => button.setAttribute("aria-pressed", String(on));
  press(get("compare"), state.heads[1] !== null);
  for (const pick of all(".pick")) {
    pick.hidden = !state.heads[1];
    press(pick, Number(pick.dataset.slot) === state.active);
  }
  for (const view of all("[data-view]")) press(view, view.dataset.view === state.view);
  for (const tab of tabs) {
    tab.setAttribute("aria-selected", String(tab.dataset.tab === state.tab));
    tab.tabIndex = tab.dataset.tab === state.tab ? 0 : -1;
  }
}

const headOf = (thumb) => ({ layer: Number(thumb.dataset.layer), head: Number(thumb.dataset.head) });
const withHead = (slot, head) => state.heads.map((old, other) => (other === slot ? head : old));

function compare() {
  if (state.heads[1]) return choose({ heads: [state.heads[0], null], active: 0 });
  const { layer, head } = state.heads[0];
  const { heads } = kindNow();
  const second = heads === 1 ? MEAN : head === MEAN ? 0 : (head + 1) % heads;
  return choose({ heads: [state.heads[0], { layer, head: second }], active: 1 });
}

/* Panels: one head each. */

/* A token as people read it: no mark where a word begins, a dot where one goes on, words for begin and end. */
function readableToken(side, text, index) {
  const goesOn = !MARKS[text] && !text.startsWith("▁");
  const button = tokenButton(side, index, text, ...(goesOn ? [make("i", {}, "·")] : []), MARKS[text] ?? text.replace(/^▁/, ""));
  button.classList.toggle("mark", text in MARKS);
  return button;
}

function buildPanel(slot) {
  const panel = panels[slot];
  const head = state.heads[slot];
  panel.root.hidden = !head;
  panel.body.replaceChildren();
  if (!head) return;
  const kind = kindNow();
  const longest = Math.max(kind.queries.length, kind.keys.length);
  panel.weights = weightsOf(kind, head);
  panel.root.setAttribute("aria-label", `${kind.title}, ${nameOf(head)}`);
  for (const select of panel.root.querySelectorAll("select")) select.value = head[select.dataset.choose];
  for (const option of panel.root.querySelectorAll("[data-choose=layer] option")) option.hidden = option.value >= kind.layers;
  panel.body.className = `body ${state.view}`;
  const row = longest > LONG ? 20 : 26;
  const room = (panel.body.clientWidth - 180) / kind.keys.length;
  panel.body.style.setProperty("--row", `${state.view === "matrix" ? limited(Math.floor(room), row, 44) : row}px`);
  panel.body.style.setProperty("--n-queries", kind.queries.length);
  panel.body.style.setProperty("--n-keys", kind.keys.length);
  const lists = ["queries", "keys"].map((side) => {
    panel.tokens[side] = kind[side].map((text, index) => readableToken(side, text, index));
    const title = kind[`${side}Title`];
    panel.body.append(make("span", { class: `title ${side}` }, title));
    return make("ol", { class: side, "aria-label": title }, ...panel.tokens[side].map((token) => make("li", {}, token)));
  });
  const drawn = state.view === "lines" ? drawLines(panel.weights) : { svg: drawMatrix(panel, slot), lines: [] };
  panel.lines = drawn.lines;
  panel.body.append(lists[0], drawn.svg, lists[1]);
  // Colours follow the square root of the weight: a quarter is half as dark.
  if (state.view === "matrix") panel.body.append(make("p", { class: "weights" }, "0 %", make("span"), "25 %", make("span"), "100 %"));
}

function drawMatrix(panel, slot) {
  const canvas = make("canvas", { "aria-hidden": "true" });
  paint(canvas, panel.weights, colours()[slot + 1], null, strength);
  const cell = (event) => {
    const [index, other] = cellAt(canvas, event);
    return { side: "queries", index, other };
  };
  canvas.addEventListener("pointermove", (event) => event.pointerType === "mouse" && !state.held && look(cell(event)));
  canvas.addEventListener("pointerleave", () => !state.held && look(null));
  canvas.addEventListener("click", (event) => hold(cell(event)));
  return make("div", { class: "cells" }, canvas, make("div", { class: "band", hidden: "" }));
}

/* Row and column of the cell under the pointer. */
function cellAt(canvas, event) {
  const box = canvas.getBoundingClientRect();
  const place = (share, count) => limited(Math.floor(share * count), 0, count - 1);
  return [place((event.clientY - box.top) / box.height, canvas.height), place((event.clientX - box.left) / box.width, canvas.width)];
}

/* Looking at a token: all panels follow. */

function look(focus) {
  state.focus = focus;
  showFocus();
}

function hold(focus) {
  const again = focus?.side === state.focus?.side && focus?.index === state.focus?.index;
  state.held = focus !== null && !(state.held && again);
  look(state.held ? focus : null);
  remember();
}

function showFocus() {
  const { focus } = state;
  for (const panel of shownSlots().map((slot) => panels[slot])) {
    showShares(panel, focus, state.held);
    const band = panel.body.querySelector(".band");
    if (!band) continue;
    band.hidden = !focus;
    band.className = `band ${focus?.side}`;
    band.style.setProperty("--at", focus?.index ?? 0);
  }
  get("says").replaceChildren(...(focus ? inWords(focus) : [
    "Point at a word, or use the arrow keys. Click or Enter holds it, Escape releases it.",
  ]));
}

/* The largest weights of the token in focus, by panel, and the weight of the cell under the pointer. */
function inWords(focus) {
  const kind = kindNow();
  const word = (side, index) => {
    const text = MARKS[kind[side][index]] ?? kind[side][index].replace("▁", "");
    return /[\p{L}\p{N}]/u.test(text) ? text : `“${text}”`; // a comma is no separator here
  };
  const other = opposite(focus.side);
  const lists = shownSlots().map((slot) => {
    const list = largestShares(panels[slot].weights, focus, 4, (index) => word(other, index));
    const head = state.heads[1] ? `${nameOf(state.heads[slot])}: ` : "";
    return make("span", { class: slot ? "second" : "first" }, head, ...list);
  });
  const said = [make("b", {}, isolated(word(focus.side, focus.index))), ` ${focus.side === "queries" ? kind.keysTitle : "is looked at by"}: `, ...lists];
  if (focus.other !== undefined) {
    const weights = shownSlots().map((slot) => percent(share(panels[slot].weights, focus, focus.other))).join(" / ");
    const pair = [isolated(word("queries", focus.index)), " → ", isolated(word("keys", focus.other))];
    said.push(make("span", { class: "cell" }, ...pair, `: ${weights}`));
  }
  return said;
}

/* Mouse and keyboard. */

/* Arrow keys within a grid of buttons, of which one at a time is in the tab order. */
function walk(event, buttons, columns) {
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
  const next = buttons[buttons.indexOf(event.target) + step];
  if (!next) return;
  event.preventDefault();
  moveTo(buttons, next);
}

function walkPanel(event, token) {
  const { tokens } = panels.find(({ body }) => body.contains(event.target));
  walkTokens(event, token, tokens, state.view === "matrix" && token.side === "keys" ? ["ArrowLeft", "ArrowRight"] : undefined);
}

function listen() {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const { tab, view, slot } = button.dataset;
    if (tab) choose({ tab, focus: null, held: false });
    else if (view) choose({ view });
    else if (slot) choose({ active: Number(slot) });
    else if (button.id === "compare") compare();
    else if (button.matches(".thumb")) choose({ heads: withHead(state.active, headOf(button)) });
    else if (button.matches(".token")) hold(tokenAt(event));
  });
  document.addEventListener("change", ({ target }) => {
    const slot = panels.findIndex(({ root }) => root.contains(target));
    choose({ heads: withHead(slot, { ...state.heads[slot], [target.dataset.choose]: Number(target.value) }), active: slot });
  }, true);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hold(null);
    else if (!event.key.startsWith("Arrow")) return;
    else if (tokenAt(event)) walkPanel(event, tokenAt(event));
    else if (thumbs.includes(event.target)) walk(event, shownThumbs(), kindNow().heads + 1);
    else if (tabs.includes(event.target)) {
      walk(event, tabs, tabs.length);
      document.activeElement.click();
    }
  });
  const root = get("panels");
  for (const [name, enters] of [["pointerover", true], ["pointerout", false]])
    root.addEventListener(name, (event) => {
      if (tokenAt(event) && event.pointerType === "mouse" && !state.held) look(enters ? tokenAt(event) : null);
    });
  // A click brings the focus too, but then it is the click that counts.
  root.addEventListener("focusin", (event) => tokenAt(event) && event.target.matches(":focus-visible") && look(tokenAt(event)));
  root.addEventListener("focusout", (event) => tokenAt(event) && !state.held && look(null));
  dark.addEventListener("change", show);
  addEventListener("hashchange", () => { recall(); show(); });
}

/* Positions: a canvas whose cells can be read, with the mouse or with the arrow keys. */

function positionMap(figure) {
  const positions = data.positions[figure.dataset.table];
  const { length, width, largest } = positions;
  const isTable = figure.dataset.map === "table";
  const columns = isTable ? width : length;
  const values = bytes(isTable ? positions.table : positions.similarities);
  const rows = Array.from({ length }, (_, row) =>
    Array.from({ length: columns }, (_, column) => (values[row * columns + column] / 255) * 2 - 1));
  const wave = (dimension) => {
    if (!positions.title.startsWith("sinusoidal")) return "";
    const period = 2 * Math.PI * 10000 ** ((dimension - (dimension % 2)) / width);
    const count = period < 100 ? period.toFixed(1) : Math.round(period).toLocaleString("en");
    return ` (${dimension % 2 ? "cosine" : "sine"}, one wave in ${count} positions)`;
  };
  const [canvas, pointer, readout] = ["canvas", ".pointer", ".readout"].map((selector) => figure.querySelector(selector));
  let at = [0, 0];
  const read = (row, column) => {
    at = [limited(row, 0, length - 1), limited(column, 0, columns - 1)];
    [row, column] = at;
    pointer.hidden = false;
    pointer.style.left = `${((column + 0.5) / columns) * 100}%`;
    pointer.style.top = `${((row + 0.5) / length) * 100}%`;
    const value = rows[row][column];
    readout.textContent = isTable
      ? `position ${row}, dimension ${column}${wave(column)}: ${(value * largest).toFixed(2)}`
      : `positions ${row} and ${column}, ${Math.abs(row - column)} apart: ${value.toFixed(2)}`;
  };
  canvas.addEventListener("pointermove", (event) => read(...cellAt(canvas, event)));
  canvas.addEventListener("focus", () => read(...at));
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step) return;
    event.preventDefault();
    read(at[0] + step[0], at[1] + step[1]);
  });
  return () => paint(canvas, rows, colours()[2], colours()[1], Math.abs);
}

const positionMaps = all(".map").map(positionMap);

/* The address remembers the choice, so that it can be kept and passed on. */

function remember() {
  const head = ({ layer, head: number }) => `${layer + 1}.${number === MEAN ? "mean" : number + 1}`;
  const parts = [`show=${state.tab}`];
  if (state.tab !== "positions") {
    parts.push(`head=${head(state.heads[0])}`);
    if (state.heads[1]) parts.push(`with=${head(state.heads[1])}`);
    if (state.view !== "lines") parts.push(`view=${state.view}`);
    if (state.held) parts.push(`${state.focus.side}=${state.focus.index + 1}`);
  }
  history.replaceState(null, "", `#${parts.join("&")}`);
}

function recall() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  Object.assign(state, OPENING);
  if (tabs.some((tab) => tab.dataset.tab === wanted.get("show"))) state.tab = wanted.get("show");
  const kind = kindNow();
  const head = (name) => {
    const [layer, number] = (wanted.get(name) ?? "").split(".");
    const found = { layer: layer - 1, head: number === "mean" ? MEAN : number - 1 };
    return thumbs.some((thumb) => nameOf(headOf(thumb)) === nameOf(found)) ? found : null;
  };
  state.heads = [head("head") ?? sharpest(kind), head("with")];
  if (wanted.get("view") === "matrix") state.view = "matrix";
  for (const side of ["queries", "keys"])
    if (kind[side][wanted.get(side) - 1] !== undefined)
      Object.assign(state, { focus: { side, index: wanted.get(side) - 1 }, held: true });
}

function choose(changes) {
  Object.assign(state, changes);
  show();
  remember();
}

function show() {
  const last = kindNow().layers - 1;
  state.heads = state.heads.map((shown) => shown && { ...shown, layer: Math.min(shown.layer, last) });
  get("attention").hidden = state.tab === "positions";
  get("positions").hidden = state.tab !== "positions";
  get("panels").classList.toggle("two", state.heads[1] !== null);
  showControls();
  if (state.tab === "positions") return positionMaps.forEach((draw) => draw());
  paintOverview();
  panels.forEach((_, slot) => buildPanel(slot));
  return showFocus();
}

recall();
listen();
show();
document.documentElement.dataset.ready = "true";

"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const MEAN = -1; // instead of a head's number: the mean of all heads of a layer
const FAINT = 0.02; // lines of less weight are not drawn
const MARKS = { "<s>": "start", "</s>": "end", "▁": "space" }; // tokens that are no words

/* What is shown. Layers and heads count from 0; `focus` is the token looked at: {side: "queries" | "keys", index}. */
const OPENING = { tab: "cross", heads: [null, null], active: 0, view: "lines", focus: null, held: false };
const state = { ...OPENING };

const get = (id) => document.getElementById(id);
const dark = matchMedia("(prefers-color-scheme: dark)");

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

function bytes(base64) {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

/* Weights. */

for (const kind of Object.values(data.kinds)) kind.bytes = bytes(kind.weights);

/* One head's weights as rows of numbers between 0 and 1: rows[query][key]. */
function weightsOf(kind, { layer, head }) {
  const [n, m] = [kind.queries.length, kind.keys.length];
  const heads = head === MEAN ? [...Array(kind.heads).keys()] : [head];
  return Array.from({ length: n }, (_, query) =>
    Array.from({ length: m }, (_, key) => {
      const sum = heads.reduce(
        (total, h) => total + kind.bytes[((layer * kind.heads + h) * n + query) * m + key], 0);
      return sum / heads.length / 255;
    }));
}

/* The head of the later layers that looks most decidedly at words, the end mark aside: a good one to begin with. */
function sharpest(kind) {
  let best = { layer: 0, head: 0, sharpness: -1 };
  for (let layer = Math.floor(kind.layers / 2); layer < kind.layers; layer++)
    for (let head = 0; head < kind.heads; head++) {
      const rows = weightsOf(kind, { layer, head });
      const sharpness = rows.reduce((sum, row) => sum + Math.max(...row.slice(0, -1), 0), 0);
      if (sharpness > best.sharpness) best = { layer, head, sharpness };
    }
  return { layer: best.layer, head: best.head };
}

const kindNow = () => data.kinds[state.tab] ?? data.kinds.cross;
const shownSlots = () => (state.heads[1] ? [0, 1] : [0]);
const nameOf = ({ layer, head }) => `layer ${layer + 1}, ${head === MEAN ? "mean of heads" : `head ${head + 1}`}`;
const percent = (weight) => (weight > 0 && weight < 0.01 ? "<1 %" : `${Math.round(weight * 100)} %`);

/* Colours: canvases take theirs from the style sheet. */

function colours() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim().split(/\s+/).map(Number);
  return { paper: read("--sheet-rgb"), inks: [read("--first-rgb"), read("--second-rgb")] };
}

/* Small weights are told apart by their square roots, as in the run's other pictures. */
const strength = (weight) => Math.sqrt(Math.min(Math.abs(weight), 1));

/* Paints rows of values, 1 in the ink and -1 in the other one. One cell is one pixel. */
function paint(canvas, rows, ink, other = ink, scale = strength) {
  const { paper } = colours();
  canvas.width = rows[0].length;
  canvas.height = rows.length;
  const image = new ImageData(canvas.width, canvas.height);
  let at = 0;
  for (const row of rows)
    for (const value of row) {
      const amount = scale(value);
      const target = value < 0 ? other : ink;
      for (let i = 0; i < 3; i++) image.data[at++] = paper[i] + (target[i] - paper[i]) * amount;
      image.data[at++] = 255;
    }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

/* Arrow keys within a grid of buttons, of which one at a time is in the tab order. */
function walk(event, buttons, columns) {
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
  const next = buttons[buttons.indexOf(document.activeElement) + step];
  if (step === undefined || !next) return;
  event.preventDefault();
  moveTo(buttons, next);
}

function moveTo(buttons, next) {
  for (const button of buttons) button.tabIndex = button === next ? 0 : -1;
  next.focus();
}

/* Tabs: the three kinds of attention and the positions. */

const TABS = [
  ...Object.entries(data.kinds).map(([name, kind]) => [name, kind.title]),
  ["positions", "Positions"],
];

function buildTabs() {
  const buttons = TABS.map(([name, title]) =>
    make("button", {
      role: "tab", type: "button", "data-tab": name, "aria-controls": name === "positions" ? name : "attention",
      onclick: () => choose({ tab: name, focus: null, held: false }),
    }, title));
  get("tabs").append(...buttons);
  get("tabs").addEventListener("keydown", (event) => {
    walk(event, buttons, buttons.length);
    if (event.key.startsWith("Arrow")) document.activeElement.click();
  });
}

/* Overview: every head of every layer, small. */

function buildOverview() {
  const kind = kindNow();
  const overview = get("overview");
  overview.style.setProperty("--columns", kind.heads + 1);
  get("attention").classList.toggle("wide", kind.heads > 8);
  overview.append(make("span"));
  for (let head = 0; head < kind.heads; head++) overview.append(make("span", { class: "mark" }, `${head + 1}`));
  overview.append(make("span", { class: "mark" }, "mean"));
  for (let layer = 0; layer < kind.layers; layer++) {
    overview.append(make("span", { class: "mark" }, `${layer + 1}`));
    for (const head of [...Array(kind.heads).keys(), MEAN])
      overview.append(make("button", {
        type: "button", class: "thumb", tabindex: "-1", title: nameOf({ layer, head }),
        "data-layer": layer, "data-head": head,
        onclick: () => {
          const heads = [...state.heads];
          heads[state.active] = { layer, head };
          choose({ heads });
        },
      }, make("canvas")));
  }
  const thumbs = [...overview.querySelectorAll(".thumb")];
  overview.addEventListener("keydown", (event) => walk(event, thumbs, kind.heads + 1));
}

function paintOverview() {
  const kind = kindNow();
  const thumbs = [...document.querySelectorAll(".thumb")];
  for (const thumb of thumbs) {
    const head = { layer: Number(thumb.dataset.layer), head: Number(thumb.dataset.head) };
    const slots = shownSlots().filter((slot) => nameOf(state.heads[slot]) === nameOf(head));
    const which = slots.map((slot) => (slot ? "second" : "first"));
    thumb.classList.toggle("first", slots.includes(0));
    thumb.classList.toggle("second", slots.includes(1));
    thumb.setAttribute("aria-pressed", String(slots.length > 0));
    thumb.setAttribute("aria-label", nameOf(head) + (which.length ? `, shown as ${which.join(" and ")} head` : ""));
    thumb.tabIndex = slots.includes(state.active) ? 0 : -1;
    thumb.style.aspectRatio = Math.min(Math.max(kind.keys.length / kind.queries.length, 0.6), 1.6);
    thumb.firstChild.style.imageRendering = kind.keys.length > 40 ? "auto" : "pixelated"; // shrunk, or enlarged
    paint(thumb.firstChild, weightsOf(kind, head), colours().inks[slots.includes(1) && !slots.includes(0) ? 1 : 0]);
  }
  get("overview-hint").textContent = state.heads[1]
    ? `A click here changes the ${state.active ? "second" : "first"} head.`
    : "Rows are layers, columns are heads; a click shows one.";
}

/* Controls. */

function buildControls() {
  const toggle = make("button", {
    type: "button", id: "compare",
    onclick: () => {
      if (state.heads[1]) return choose({ heads: [state.heads[0], null], active: 0 });
      const { layer, head } = state.heads[0];
      const second = { layer, head: head === MEAN ? 0 : (head + 1) % kindNow().heads };
      return choose({ heads: [state.heads[0], kindNow().heads > 1 ? second : { layer, head: MEAN }], active: 1 });
    },
  }, "Compare two heads");
  const picks = ["first", "second"].map((name, slot) =>
    make("button", { type: "button", class: `pick ${name}`, onclick: () => choose({ active: slot }) }, `Change ${name}`));
  get("slots").append(toggle, ...picks);
  for (const view of ["lines", "matrix"])
    get("views").append(make("button", {
      type: "button", "data-view": view, onclick: () => choose({ view }),
    }, view === "lines" ? "Lines" : "Matrix"));
}

function showControls() {
  get("compare").setAttribute("aria-pressed", String(state.heads[1] !== null));
  document.querySelectorAll(".pick").forEach((pick, slot) => {
    pick.hidden = !state.heads[1];
    pick.setAttribute("aria-pressed", String(state.active === slot));
  });
  for (const button of get("views").children)
    button.setAttribute("aria-pressed", String(button.dataset.view === state.view));
  for (const tab of get("tabs").children) {
    const selected = tab.dataset.tab === state.tab;
    tab.setAttribute("aria-selected", String(selected));
    tab.tabIndex = selected ? 0 : -1;
  }
}

/* Panels: one head each. */

const panels = [];

function buildPanels() {
  const kind = kindNow();
  ["first", "second"].forEach((name, slot) => {
    const select = (label, key, options) =>
      make("label", {}, `${label} `, make("select", {
        "data-choose": key, "aria-label": `${label} of the ${name} head`,
        onchange: (event) => {
          const heads = [...state.heads];
          heads[slot] = { ...heads[slot], [key]: Number(event.target.value) };
          choose({ heads, active: slot });
        },
      }, ...options.map(([value, text]) => make("option", { value }, text))));
    const layers = Array.from({ length: kind.layers }, (_, layer) => [layer, `${layer + 1}`]);
    const heads = Array.from({ length: kind.heads }, (_, head) => [head, `${head + 1}`]);
    const body = make("div", { class: "body" });
    const root = make("section", { class: `panel ${name}` },
      make("div", { class: "head" }, select("Layer", "layer", layers), select("Head", "head", [...heads, [MEAN, "mean"]])),
      body);
    panels.push({ root, body, weights: [], lines: [], tokens: { queries: [], keys: [] } });
    get("panels").append(root);
  });
}

/* A token as people read it: no mark where a word begins, a dot where one goes on, words for begin and end. */
function tokenButton(panel, side, text, index) {
  const begins = text.startsWith("▁");
  const shown = MARKS[text] ?? (begins ? text.slice(1) : text);
  const button = make("button", {
    type: "button", class: `token${MARKS[text] ? " mark" : ""}`, title: text, tabindex: index ? "-1" : "0",
    "data-side": side, "data-index": index,
  }, make("span", { class: "text" }, ...(begins || MARKS[text] ? [] : [make("i", {}, "·")]), shown),
  make("span", { class: "share", "aria-hidden": "true" }));
  panel.tokens[side].push(button);
  return make("li", {}, button);
}

function buildPanel(slot) {
  const panel = panels[slot];
  const head = state.heads[slot];
  panel.root.hidden = !head;
  panel.body.replaceChildren();
  panel.tokens = { queries: [], keys: [] };
  panel.lines = [];
  if (!head) return;
  const kind = kindNow();
  panel.weights = weightsOf(kind, head);
  panel.root.setAttribute("aria-label", `${kind.title}, ${nameOf(head)}`);
  for (const select of panel.root.querySelectorAll("select")) select.value = head[select.dataset.choose];
  const list = (side, title, tokens) =>
    make("ol", { class: side, "aria-label": title }, ...tokens.map((text, i) => tokenButton(panel, side, text, i)));
  const queries = list("queries", kind.queryTitle, kind.queries);
  const keys = list("keys", kind.keyTitle, kind.keys);
  const longest = Math.max(kind.queries.length, kind.keys.length);
  panel.body.className = `body ${state.view}`;
  panel.body.style.setProperty("--row", `${longest > 40 ? 20 : 26}px`);
  panel.body.style.setProperty("--n-queries", kind.queries.length);
  panel.body.style.setProperty("--n-keys", kind.keys.length);
  const titles = [make("span", { class: "title queries" }, kind.queryTitle), make("span", { class: "title keys" }, kind.keyTitle)];
  panel.body.append(...titles, queries, state.view === "lines" ? drawLines(panel) : drawMatrix(panel, slot), keys);
}

function drawLines(panel) {
  const svgNs = "http://www.w3.org/2000/svg";
  const [n, m] = [panel.weights.length, panel.weights[0].length];
  const svg = document.createElementNS(svgNs, "svg");
  const height = Math.max(n, m);
  svg.setAttribute("viewBox", `0 0 100 ${height * 10}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  panel.weights.forEach((row, query) => row.forEach((weight, key) => {
    if (weight < FAINT) return;
    const path = document.createElementNS(svgNs, "path");
    const [from, to] = [query * 10 + 5, key * 10 + 5];
    path.setAttribute("d", `M0 ${from}C45 ${from} 55 ${to} 100 ${to}`);
    path.style.setProperty("--weight", weight.toFixed(3));
    panel.lines.push({ path, queries: query, keys: key });
    svg.append(path);
  }));
  return svg;
}

function drawMatrix(panel, slot) {
  const canvas = make("canvas", { "aria-hidden": "true" });
  paint(canvas, panel.weights, colours().inks[slot]);
  const cell = (event) => {
    const box = canvas.getBoundingClientRect();
    const place = (at, start, size, count) => Math.min(Math.max(Math.floor(((at - start) / size) * count), 0), count - 1);
    return {
      side: "queries",
      index: place(event.clientY, box.top, box.height, canvas.height),
      other: place(event.clientX, box.left, box.width, canvas.width),
    };
  };
  canvas.addEventListener("pointermove", (event) => event.pointerType === "mouse" && !state.held && look(cell(event)));
  canvas.addEventListener("pointerleave", () => !state.held && look(null));
  canvas.addEventListener("click", (event) => hold(cell(event)));
  return make("div", { class: "cells" }, canvas, make("div", { class: "band", hidden: true }));
}

/* Looking at a token: all panels follow. */

const same = (one, two) => one && two && one.side === two.side && one.index === two.index;

function look(focus) {
  state.focus = focus;
  showFocus();
}

function hold(focus) {
  state.held = !(state.held && same(state.focus, focus));
  look(state.held ? focus : null);
  remember();
}

function showFocus() {
  const { focus } = state;
  const other = focus?.side === "queries" ? "keys" : "queries";
  for (const slot of shownSlots()) {
    const panel = panels[slot];
    panel.body.classList.toggle("looking", focus !== null);
    const share = (index) => (focus.side === "queries" ? panel.weights[focus.index][index] : panel.weights[index][focus.index]);
    for (const side of ["queries", "keys"])
      panel.tokens[side].forEach((button, index) => {
        const weight = focus && side === other ? share(index) : null;
        button.classList.toggle("looked", Boolean(focus) && side === focus.side && index === focus.index);
        button.classList.toggle("held", state.held && side === focus?.side && index === focus.index);
        button.style.setProperty("--strength", weight === null ? 0 : strength(weight).toFixed(3));
        button.lastChild.textContent = weight === null || weight < 0.005 ? "" : percent(weight);
        if (weight === null) delete button.dataset.weight;
        else button.dataset.weight = weight.toFixed(3);
      });
    for (const line of panel.lines)
      line.path.classList.toggle("off", Boolean(focus) && line[focus.side] !== focus.index);
    const band = panel.body.querySelector(".band");
    if (band) {
      band.hidden = !focus;
      band.className = `band ${focus?.side}`;
      band.style.setProperty("--at", focus?.index ?? 0);
    }
  }
  say();
}

function say() {
  const { focus } = state;
  const kind = kindNow();
  if (!focus)
    return get("says").replaceChildren(
      "Point at a word, or walk with the arrow keys. Click or Enter holds it, Escape lets go.");
  const other = focus.side === "queries" ? "keys" : "queries";
  const word = (side, index) => {
    const text = MARKS[kind[side][index]] ?? kind[side][index].replace("▁", "");
    return /[\p{L}\p{N}]/u.test(text) ? text : `“${text}”`; // a comma is no separator here
  };
  const parts = shownSlots().map((slot) => {
    const weights = panels[slot].weights;
    const ranked = kind[other]
      .map((_, i) => [i, focus.side === "queries" ? weights[focus.index][i] : weights[i][focus.index]])
      .sort((one, two) => two[1] - one[1]).slice(0, 4).filter(([, weight]) => weight >= 0.01);
    const list = ranked.map(([i, weight]) => `${word(other, i)} ${percent(weight)}`).join(", ") || "nothing much";
    return make("span", { class: slot ? "second" : "first" }, state.heads[1] ? `${nameOf(state.heads[slot])}: ${list}` : list);
  });
  const verb = focus.side === "queries" ? kind.keyTitle : "is looked at by";
  const cellWeights = () => shownSlots().map((slot) => percent(panels[slot].weights[focus.index][focus.other])).join(" / ");
  const cell = focus.other === undefined ? [] : [make("span", { class: "cell" },
    `${word("queries", focus.index)} → ${word("keys", focus.other)}: ${cellWeights()}`)];
  return get("says").replaceChildren(make("b", {}, word(focus.side, focus.index)), ` ${verb}: `, ...parts, ...cell);
}

/* One set of listeners serves all tokens of both panels. */
function listenToTokens() {
  const place = (event) => {
    const token = event.target.closest?.(".token");
    return token && { side: token.dataset.side, index: Number(token.dataset.index) };
  };
  const root = get("panels");
  root.addEventListener("pointerover", (event) => {
    const focus = place(event);
    if (focus && event.pointerType === "mouse" && !state.held) look(focus);
  });
  root.addEventListener("pointerout", (event) => place(event) && event.pointerType === "mouse" && !state.held && look(null));
  root.addEventListener("focusin", (event) => {
    // A click brings the focus too, but then it is the click that counts.
    if (place(event) && event.target.matches(":focus-visible")) look(place(event));
  });
  root.addEventListener("focusout", (event) => place(event) && !state.held && look(null));
  root.addEventListener("click", (event) => place(event) && hold(place(event)));
  root.addEventListener("keydown", (event) => {
    const focus = place(event);
    if (!focus) return;
    const panel = panels.find(({ body }) => body.contains(event.target));
    const across = state.view === "matrix" ? focus.side === "keys" : false;
    const previous = across ? "ArrowLeft" : "ArrowUp";
    const next = across ? "ArrowRight" : "ArrowDown";
    const tokens = panel.tokens[focus.side];
    if (event.key === previous || event.key === next) {
      const wanted = tokens[focus.index + (event.key === next ? 1 : -1)];
      if (wanted) moveTo(tokens, wanted);
    } else if (event.key.startsWith("Arrow")) {
      const others = panel.tokens[focus.side === "queries" ? "keys" : "queries"];
      moveTo(others, others[Math.min(focus.index, others.length - 1)]);
    } else return;
    event.preventDefault();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    state.held = false;
    look(null);
    remember();
  });
}

/* Positions. */

function buildPositions() {
  for (const positions of data.positions) {
    const { title, length, width, largest } = positions;
    const sinusoidal = title.startsWith("sinusoidal");
    const rows = (base64, columns) => {
      const all = bytes(base64);
      return Array.from({ length }, (_, row) =>
        Array.from({ length: columns }, (_, column) => (all[row * columns + column] / 255) * 2 - 1));
    };
    const wave = (dimension) => {
      const period = 2 * Math.PI * 10000 ** ((dimension - (dimension % 2)) / width);
      return ` (${dimension % 2 ? "cosine" : "sine"}, one wave in ${period < 100 ? period.toFixed(1) : Math.round(period).toLocaleString("en")} positions)`;
    };
    get("positions").append(make("h2", {}, title), make("div", { class: "maps" },
      positionMap("table", rows(positions.table, width), ["position", "dimension"], 0,
        `What is added to the embeddings: ${length} positions down, ${width} dimensions across.`,
        (row, column, value) =>
          `position ${row}, dimension ${column}${sinusoidal ? wave(column) : ""}: ${(value * largest).toFixed(2)}`),
      positionMap("similarity", rows(positions.similarities, length), ["position", "position"], 1,
        "How alike two positions are: their dot product, 1 on the diagonal.",
        (row, column, value) => `positions ${row} and ${column}, ${Math.abs(row - column)} apart: ${value.toFixed(2)}`)));
  }
}

const positionMaps = [];

function positionMap(name, rows, axes, square, caption, describe) {
  const canvas = make("canvas", { tabindex: "0", role: "img", "aria-label": `${caption} Arrow keys move a pointer.` });
  const pointer = make("div", { class: "pointer", hidden: true });
  const readout = make("p", { class: "readout", role: "status" }, "Point at a cell.");
  const at = [0, 0];
  const show = (row, column) => {
    at[0] = Math.min(Math.max(row, 0), rows.length - 1);
    at[1] = Math.min(Math.max(column, 0), rows[0].length - 1);
    pointer.hidden = false;
    pointer.style.left = `${((at[1] + 0.5) / rows[0].length) * 100}%`;
    pointer.style.top = `${((at[0] + 0.5) / rows.length) * 100}%`;
    readout.textContent = describe(at[0], at[1], rows[at[0]][at[1]]);
  };
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    show(Math.floor(((event.clientY - box.top) / box.height) * rows.length),
      Math.floor(((event.clientX - box.left) / box.width) * rows[0].length));
  });
  canvas.addEventListener("focus", () => show(...at));
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step) return;
    event.preventDefault();
    show(at[0] + step[0], at[1] + step[1]);
  });
  positionMaps.push(() => paint(canvas, rows, colours().inks[1], colours().inks[0], Math.abs));
  return make("figure", { class: `map ${square ? "square" : "oblong"}`, "data-map": name },
    make("figcaption", {}, caption),
    make("div", { class: "frame" }, make("span", { class: "axis down" }, `${axes[0]} ↓`),
      make("div", { class: "surface" }, canvas, pointer), make("span", { class: "axis" }, `${axes[1]} →`)),
    readout);
}

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
  if (TABS.some(([name]) => name === wanted.get("show"))) state.tab = wanted.get("show");
  const kind = kindNow();
  const head = (text) => {
    const [layer, number] = (text ?? "").split(".");
    const found = { layer: layer - 1, head: number === "mean" ? MEAN : number - 1 };
    const known = found.layer in [...Array(kind.layers)] && (found.head === MEAN || found.head in [...Array(kind.heads)]);
    return known ? found : null;
  };
  state.heads = [head(wanted.get("head")) ?? sharpest(kind), head(wanted.get("with"))];
  if (wanted.get("view") === "matrix") state.view = "matrix";
  for (const side of ["queries", "keys"])
    if (kind[side][wanted.get(side) - 1] !== undefined) {
      state.focus = { side, index: wanted.get(side) - 1 };
      state.held = true;
    }
}

function choose(changes) {
  Object.assign(state, changes);
  show();
  remember();
}

function show() {
  get("attention").hidden = state.tab === "positions";
  get("positions").hidden = state.tab !== "positions";
  showControls();
  if (state.tab === "positions") return positionMaps.forEach((draw) => draw());
  get("panels").classList.toggle("two", state.heads[1] !== null);
  paintOverview();
  buildPanel(0);
  buildPanel(1);
  return showFocus();
}

get("model").textContent = `${data.run} · ${data.model}`;
get("sentence").textContent = data.sentence;
get("translation").textContent = data.translation;
const signed = (number, digits) => number.toFixed(digits).replace("-", "−");
get("score").textContent =
  `${signed(data.score, 3)} (log-probability ${signed(data.logProb, 2)}, divided by the search's length penalty)`;
recall();
buildTabs();
buildOverview();
buildControls();
buildPanels();
buildPositions();
listenToTokens();
show();
dark.addEventListener("change", show);
addEventListener("hashchange", () => { recall(); show(); });
document.documentElement.dataset.ready = "true";

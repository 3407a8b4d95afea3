"use strict";

/* What the explorer and the page of `aiayn serve` draw attention with. A side is "queries", on the left, or "keys". */

const FAINT = 0.02; // lines of less weight are not drawn
const WEAK = 0.1; // of a long sentence, lines of less weight are drawn only for the token that is looked at
const LONG = 40; // tokens
const SVG = "http://www.w3.org/2000/svg";

const opposite = (side) => (side === "queries" ? "keys" : "queries");
const percent = (weight) => (weight > 0 && weight < 0.01 ? "<1 %" : `${Math.round(weight * 100)} %`);

/* Small weights are told apart by their square roots, as in the run's other pictures. */
const strength = (weight) => Math.sqrt(Math.min(weight, 1));

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/* The button of a token, with room for its share of the attention. */
function tokenButton(side, index, title, ...text) {
  return make("button", {
    type: "button", class: "token", title, tabindex: index ? -1 : 0, "data-side": side, "data-index": index,
  }, make("span", { class: "text", dir: "auto" }, ...text), make("span", { class: "share", "aria-hidden": "true" }));
}

/* Lines between queries and keys, as thick as their weights: the picture, and {path, queries, keys} of every line. */
function drawLines(weights) {
  const longest = Math.max(weights.length, weights[0].length);
  const svg = document.createElementNS(SVG, "svg");
  for (const [name, value] of [["viewBox", `0 0 100 ${longest * 10}`], ["preserveAspectRatio", "none"], ["aria-hidden", "true"]])
    svg.setAttribute(name, value);
  const lines = [];
  weights.forEach((row, queries) => row.forEach((weight, keys) => {
    if (weight < FAINT) return;
    const path = document.createElementNS(SVG, "path");
    const [from, to] = [queries * 10 + 5, keys * 10 + 5];
    path.setAttribute("d", `M0 ${from}C45 ${from} 55 ${to} 100 ${to}`);
    path.style.setProperty("--weight", weight.toFixed(3));
    path.classList.toggle("weak", longest > LONG && weight < WEAK);
    lines.push({ path, queries, keys });
    svg.append(path);
  }));
  return { svg, lines };
}

/* How much the token in focus looks at the other side's token `index`, or is looked at by it. */
const share = (weights, { side, index }, other) => (side === "queries" ? weights[index][other] : weights[other][index]);

/* A word amid a sentence of the page, which keeps its order beside words from right to left. */
const isolated = (word) => make("bdi", {}, word);

/* The `count` largest shares of the token in focus, as parts of a sentence; `word` gives the word of a token on the
   other side. */
function largestShares(weights, focus, count, word) {
  const shares = focus.side === "queries" ? weights[focus.index] : weights.map((row) => row[focus.index]);
  const largest = shares.map((weight, index) => [weight, index]).sort((one, two) => two[0] - one[0]).slice(0, count)
    .filter(([weight]) => weight >= 0.01);
  if (!largest.length) return ["nothing much"];
  return largest.flatMap(([weight, index], rank) => [rank ? ", " : "", isolated(word(index)), ` ${percent(weight)}`]);
}

/* Shows the shares of the token in focus, {side, index} or null, at the other side's tokens and by its lines. */
function showShares({ body, tokens, lines, weights }, focus, held) {
  body.classList.toggle("looking", focus !== null);
  for (const side of ["queries", "keys"])
    tokens[side].forEach((button, index) => {
      const inFocus = side === focus?.side && index === focus.index;
      const weight = focus && side !== focus.side ? share(weights, focus, index) : null;
      button.classList.toggle("looked", inFocus);
      button.classList.toggle("held", held && inFocus);
      button.style.setProperty("--strength", weight === null ? 0 : strength(weight).toFixed(3));
      button.lastChild.textContent = weight === null || weight < 0.005 ? "" : percent(weight);
      if (weight === null) delete button.dataset.weight;
      else button.dataset.weight = weight.toFixed(3);
    });
  for (const line of lines) line.path.classList.toggle("off", focus !== null && line[focus.side] !== focus.index);
}

/* The token that an event happened at, as {side, index}, or null. */
function tokenAt({ target }) {
  const token = target.closest?.(".token");
  return token ? { side: token.dataset.side, index: Number(token.dataset.index) } : null;
}

/* Moves the focus within a group of buttons, of which one at a time is in the tab order. */
function moveTo(buttons, next) {
  for (const button of buttons) button.tabIndex = button === next ? 0 : -1;
  next.focus();
}

/* Arrow keys: along a list of tokens (two keys), or over to the other side. */
function walkTokens(event, { side, index }, tokens, along = ["ArrowUp", "ArrowDown"]) {
  const step = { [along[0]]: -1, [along[1]]: 1 }[event.key];
  const others = tokens[opposite(side)];
  const next = step ? tokens[side][index + step] : others[Math.min(index, others.length - 1)];
  event.preventDefault();
  if (next) moveTo(step ? tokens[side] : others, next);
}

"use strict";

const get = (id) => document.getElementById(id);
const PAUSE = 250; // milliseconds without a key until the text is sent
const TOGETHER = 8; // lines of a request: of a long text the first come soon

let settings; // of the server
const known = new Map(); // line of the source: its translations, best first
const chosen = new Map(); // line of the source: which of its translations is shown, if not the best
const state = { line: 0, word: null, drawing: null }; // the current line; the word that was clicked, from 0
let sending = new AbortController();
let timer;

const lines = () => get("source").value.split("\n").map((line) => line.trim());
const shown = (line) => known.get(line)?.[chosen.get(line) ?? 0];
const current = () => lines()[state.line] ?? "";

/* Sends a request. Returns the answer, or throws an Error with the server's own words. */
async function post(path, fields, signal) {
  const body = JSON.stringify({ ...fields, api_key: get("key").value });
  const response = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body, signal });
  if (response.ok) return response.json();
  const message = await response.json().then((answer) => answer.error, () => `the server answered ${response.status}`);
  throw Object.assign(new Error(message), { later: response.headers.get("Retry-After") });
}

function say(text, isError = false) {
  get("status").textContent = text;
  get("status").classList.toggle("error", isError);
}

/* Translates the lines that are not known yet. A later call ends an earlier one. */
async function translate() {
  sending.abort();
  sending = new AbortController();
  const { signal } = sending;
  const missing = [...new Set(lines())].filter((line) => line && !known.has(line));
  try {
    for (let start = 0; start < missing.length; start += TOGETHER) {
      say(missing.length > TOGETHER ? `Translating, ${missing.length - start} lines to go` : "Translating");
      const q = missing.slice(start, start + TOGETHER);
      const { source, target } = settings.language;
      const found = await post("translate", {
        q, source: source.code, target: target.code, alternatives: Math.min(settings.alternatives, 3),
      }, signal);
      q.forEach((line, index) => known.set(line, [found.translatedText[index], ...found.alternatives?.[index] ?? []]));
      showTranslation();
    }
    say("");
    showTranslation();
  } catch (error) {
    if (signal.aborted) return;
    say(error.later ? `${error.message}. Trying again.` : error.message, true);
    if (error.later) later(Number(error.later) * 1000);
  }
}

function later(milliseconds) {
  clearTimeout(timer);
  timer = setTimeout(translate, milliseconds);
}

/* The translation, line by line, as words that can be clicked. A line that is not translated yet shows its old words. */
function showTranslation() {
  const all = lines();
  const rows = get("translation").children;
  while (rows.length > all.length) rows[rows.length - 1].remove();
  while (rows.length < all.length) get("translation").append(make("p"));
  all.forEach((line, index) => {
    const row = rows[index];
    const text = line ? shown(line) : "";
    row.classList.toggle("old", text === undefined);
    row.classList.toggle("current", index === state.line && all.length > 1);
    if (text === undefined || row.dataset.text === text) return;
    row.dataset.text = text;
    row.replaceChildren(...text.split(" ").flatMap((word, place) => [
      ...(place ? [" "] : []),
      word && make("span", {
        class: "word", role: "button", tabindex: place ? -1 : 0, "aria-pressed": "false", "data-line": index, "data-word": place,
      }, word),
    ]));
  });
  showDetails();
}

/* The alternatives of the current line, and the word that was clicked. */
function showDetails() {
  const line = current();
  const found = known.get(line) ?? [];
  get("details").hidden = !line || !found.length;
  get("alternatives").replaceChildren(...found.map((text, index) => make("li", {}, make("button", {
    type: "button", "aria-pressed": String(index === (chosen.get(line) ?? 0)), "data-choice": index,
  }, text))));
  for (const word of document.querySelectorAll(".word"))
    word.setAttribute("aria-pressed", String(Number(word.dataset.line) === state.line && Number(word.dataset.word) === state.word));
  if (state.word === null) {
    get("drawing").replaceChildren();
    get("says").textContent = "Click a word of the translation.";
  }
}

function goTo(line) {
  if (line !== state.line) Object.assign(state, { line, word: null, drawing: null });
  showTranslation();
}

/* Draws where the model looked when it wrote the current line, with one word in focus. */
async function look(line, word) {
  Object.assign(state, { line, word, drawing: null });
  showTranslation();
  const [q, translation] = [current(), shown(current())];
  if (translation === undefined) return; // these are old words
  try {
    const found = await post("attention", { q, translation });
    if (state.line !== line || state.word !== word || shown(current()) !== translation) return;
    draw(found);
    focusOn({ side: "queries", index: word });
  } catch (error) {
    get("says").textContent = error.message;
  }
}

function draw({ source, translation, weights }) {
  const body = get("drawing");
  const tokens = {
    queries: translation.map((word, index) => tokenButton("queries", index, word, word)),
    keys: source.map((word, index) => tokenButton("keys", index, word, word)),
  };
  const { svg, lines } = drawLines(weights);
  const list = (side) => make("ol", { class: side }, ...tokens[side].map((token) => make("li", {}, token)));
  const title = (side, text) => make("span", { class: `title ${side}` }, text);
  body.style.setProperty("--row", "26px");
  body.style.setProperty("--n-queries", translation.length);
  body.style.setProperty("--n-keys", source.length);
  body.replaceChildren(title("queries", "writes"), title("keys", "looks at"), list("queries"), svg, list("keys"));
  state.drawing = { body, tokens, lines, weights };
}

function focusOn(focus) {
  if (!state.drawing) return;
  showShares(state.drawing, focus, true);
  const other = opposite(focus.side);
  const word = (side, index) => state.drawing.tokens[side][index]?.title;
  const names = largestShares(state.drawing.weights, focus, 3, (index) => word(other, index));
  const verb = focus.side === "queries" ? " looks at: " : " is looked at by: ";
  get("says").replaceChildren(make("b", {}, isolated(word(focus.side, focus.index) ?? "")), verb, ...names);
}

/* Mouse and keyboard. */

const wordAt = ({ target }) => target.closest?.(".word");

function listen() {
  get("source").addEventListener("input", () => {
    Object.assign(state, { word: null, drawing: null });
    goTo(caretLine());
    later(PAUSE);
  });
  for (const name of ["keyup", "click"]) get("source").addEventListener(name, () => goTo(caretLine()));
  get("key").addEventListener("change", translate);
  get("copy").addEventListener("click", async () => {
    await navigator.clipboard.writeText(lines().map((line) => (line && shown(line)) ?? "").join("\n"));
    say("Copied");
  });
  document.addEventListener("click", (event) => {
    const word = wordAt(event);
    const choice = event.target.closest("[data-choice]");
    if (word) look(Number(word.dataset.line), Number(word.dataset.word));
    else if (choice) choose(Number(choice.dataset.choice));
    else if (tokenAt(event)) focusOn(tokenAt(event));
  });
  document.addEventListener("keydown", (event) => {
    const word = wordAt(event);
    if (event.key === "Escape" && state.word !== null) { Object.assign(state, { word: null, drawing: null }); showDetails(); }
    else if (word && ["Enter", " "].includes(event.key)) { event.preventDefault(); word.click(); }
    else if (word && event.key.startsWith("Arrow")) walkWords(event, word);
    else if (tokenAt(event) && event.key.startsWith("Arrow")) walkTokens(event, tokenAt(event), state.drawing.tokens);
  });
  get("drawing").addEventListener("pointerover", (event) => event.pointerType === "mouse" && tokenAt(event) && focusOn(tokenAt(event)));
  get("drawing").addEventListener("pointerleave", () => focusOn({ side: "queries", index: state.word }));
  get("drawing").addEventListener("focusin", (event) => tokenAt(event) && focusOn(tokenAt(event)));
}

const caretLine = () => get("source").value.slice(0, get("source").selectionStart).split("\n").length - 1;

/* Left and right go along a line, up and down to the next line. */
function walkWords(event, word) {
  const row = word.parentNode;
  const words = [...row.querySelectorAll(".word")];
  const [back, on] = [row.previousElementSibling, row.nextElementSibling];
  const next = { ArrowLeft: words[words.indexOf(word) - 1], ArrowRight: words[words.indexOf(word) + 1],
    ArrowUp: back?.querySelector(".word"), ArrowDown: on?.querySelector(".word") }[event.key];
  event.preventDefault();
  if (next) moveTo(words.includes(next) ? words : [], next);
}

function choose(index) {
  chosen.set(current(), index);
  Object.assign(state, { word: null, drawing: null });
  showTranslation();
  get("alternatives").querySelectorAll("button")[index].focus();
}

async function start() {
  settings = await (await fetch("frontend/settings")).json();
  const { source, target } = settings.language;
  const title = `${source.name} to ${target.name}`;
  document.title = get("title").textContent = title;
  get("run").textContent = settings.run;
  get("source-title").textContent = source.name;
  get("translation-title").textContent = target.name;
  get("source").lang = source.code;
  get("translation").lang = target.code;
  get("key-row").hidden = !settings.keyRequired;
  get("copy").hidden = !navigator.clipboard; // only for pages of this machine, or by TLS
  listen();
  translate();
  document.documentElement.dataset.ready = "true";
}

start().catch((error) => say(error.message, true));

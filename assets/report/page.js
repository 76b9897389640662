"use strict";
// Everything that a model wrote reaches the page through textContent only.

const PAGE_SIZE = 50;
const LONG = 1500;
const VERY_LONG = 20000;
const byId = (id) => document.getElementById(id);

function element(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "text") node.textContent = value;
    else if (value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function disclose(summary, ...children) {
  return element("details", {}, element("summary", { text: summary }), ...children);
}

// Data: pages are unpacked when they are first needed.

let packed = {};
const unpacked = new Map();

function unpack(name) {
  if (!unpacked.has(name)) {
    const bytes = Uint8Array.from(atob(packed[name]), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    unpacked.set(name, new Response(stream).text().then(JSON.parse));
  }
  return unpacked.get(name);
}

// The list of episodes.

const state = { index: null, shown: [], page: 0, active: -1, opened: null, request: 0 };

function asEpisode(row) {
  const [run, task, trial, place, causes, stop, steps, tokens] = row;
  const [query, template, language, request] = state.index.tasks[task];
  return { run, query, template, language, request, trial, place, causes, stop, steps, tokens, success: !causes.length };
}

function addressOf(episode) {
  return `#episode/${episode.run}/${episode.language}/${episode.query}/${episode.trial}`;
}

function fillFilters(form) {
  const { runs, languages, templates, causes, episodes } = state.index;
  const seen = { language: new Set(), template: new Set(), cause: new Set() };
  for (const episode of episodes) {
    seen.language.add(episode.language);
    seen.template.add(episode.template);
    if (!episode.success) seen.cause.add(episode.causes[0]);
  }
  const add = (name, value, text) => form.elements[name].append(element("option", { value, text }));
  runs.forEach((label, number) => add("run", String(number), label));
  for (const [code, name] of Object.entries(languages)) if (seen.language.has(code)) add("language", code, name);
  for (const [id, meaning] of Object.entries(templates)) if (seen.template.has(id)) add("template", id, `${id} ${meaning}`);
  causes.forEach(([id, name], number) => seen.cause.has(number) && add("cause", id, name));
}

function applyFilters() {
  const form = byId("filters");
  const want = Object.fromEntries(["run", "language", "template", "outcome", "cause"].map((name) => [name, form.elements[name].value]));
  const words = form.elements.text.value.toLowerCase().split(/\s+/).filter(Boolean);
  const { causes, episodes } = state.index;
  state.shown = episodes.filter((episode) => {
    const found = `${episode.query} ${episode.request}`.toLowerCase();
    return (
      (!want.run || String(episode.run) === want.run) &&
      (!want.language || episode.language === want.language) &&
      (!want.template || episode.template === want.template) &&
      (!want.outcome || episode.success === (want.outcome === "success")) &&
      (!want.cause || (!episode.success && causes[episode.causes[0]][0] === want.cause)) &&
      words.every((word) => found.includes(word))
    );
  });
  byId("count").textContent = `${state.shown.length.toLocaleString("en")} of ${episodes.length.toLocaleString("en")} episodes`;
  showPage(0);
}

function showPage(page, active = 0) {
  const pages = Math.max(1, Math.ceil(state.shown.length / PAGE_SIZE));
  state.page = Math.min(Math.max(page, 0), pages - 1);
  const start = state.page * PAGE_SIZE;
  const rows = state.shown.slice(start, start + PAGE_SIZE).map(makeRow);
  byId("list").replaceChildren(...(rows.length ? rows : [element("p", { class: "empty", text: "No episode fits the filters." })]));
  byId("list").scrollTop = 0;
  byId("page").textContent = `${state.page + 1} of ${pages}`;
  byId("previous").disabled = state.page === 0;
  byId("next").disabled = state.page === pages - 1;
  activate(rows.length ? Math.min(active, rows.length - 1) : -1, false);
}

function makeRow(episode, place) {
  const cause = episode.success ? "right" : state.index.causes[episode.causes[0]][1];
  const outcome = episode.success ? "success" : "failure";
  const run = state.index.runs.length > 1 ? element("div", { class: "muted", text: state.index.runs[episode.run] }) : null;
  const row = element(
    "li",
    { id: `row-${place}`, role: "option", "aria-selected": String(episode === state.opened) },
    element(
      "div",
      { class: "line" },
      element("strong", { text: episode.query }),
      element("span", { text: episode.language }),
      element("span", { class: "muted", text: `trial ${episode.trial + 1}` }),
      element("span", { class: `outcome end ${outcome}`, text: `${episode.success ? "✓" : "✗"} ${cause}` }),
    ),
    run,
    element("div", { class: "request", text: episode.request, lang: episode.language, dir: "auto" }),
  );
  row.addEventListener("click", () => {
    activate(place, false);
    open(episode, true);
  });
  return row;
}

function activate(place, scroll = true) {
  const list = byId("list");
  list.querySelector(".active")?.classList.remove("active");
  state.active = place;
  const row = byId(`row-${place}`);
  if (!row) {
    list.removeAttribute("aria-activedescendant");
    return;
  }
  row.classList.add("active");
  list.setAttribute("aria-activedescendant", row.id);
  if (scroll) row.scrollIntoView({ block: "nearest" });
}

function onListKey(event) {
  const last = byId("list").querySelectorAll("li").length - 1;
  const moves = {
    ArrowDown: () => (state.active < last ? activate(state.active + 1) : byId("next").disabled || showPage(state.page + 1)),
    ArrowUp: () => (state.active > 0 ? activate(state.active - 1) : state.page > 0 && showPage(state.page - 1, PAGE_SIZE)),
    Home: () => activate(0),
    End: () => activate(last),
    PageDown: () => showPage(state.page + 1),
    PageUp: () => showPage(state.page - 1),
    Enter: openActive,
    " ": openActive,
  };
  if (last < 0 || !moves[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  moves[event.key]();
}

function openActive() {
  const episode = state.shown[state.page * PAGE_SIZE + state.active];
  if (episode) open(episode, true);
}

// One episode.

async function open(episode, focus) {
  const request = ++state.request;
  const page = await unpack(`${episode.run}-${episode.language}`);
  // Another episode may have been opened while this one's page was unpacked.
  if (request !== state.request) return;
  state.opened = episode;
  byId("list").querySelectorAll("li").forEach((row, place) => {
    row.setAttribute("aria-selected", String(state.shown[state.page * PAGE_SIZE + place] === episode));
  });
  history.replaceState(null, "", addressOf(episode));
  const view = byId("conversation");
  view.replaceChildren(...showEpisode(episode, page, page.episodes[episode.place]));
  if (focus) {
    view.focus({ preventScroll: true });
    const top = view.getBoundingClientRect().top;
    if (top < 0 || top > innerHeight * 0.6) view.scrollIntoView();
  }
}

function showEpisode(episode, page, record) {
  const back = element("button", { type: "button", class: "back", text: "‹ Back to the list" });
  back.addEventListener("click", toList);
  const facts = [
    state.index.runs[episode.run],
    state.index.languages[episode.language],
    `trial ${episode.trial + 1}`,
    `${episode.steps} steps`,
    episode.tokens ? `${episode.tokens.toLocaleString("en")} tokens` : null,
    episode.stop.replaceAll("_", " "),
  ];
  const outcome = episode.success ? "success" : "failure";
  const lines = record.explanation.map((line) => element("p", { text: page.texts[line], dir: "auto" }));
  const others = episode.causes.slice(1).map((cause) => state.index.causes[cause][1]);
  if (others.length) lines.push(element("p", { class: "muted", text: `Contributing: ${others.join(", ")}.` }));
  const heading = episode.success ? "right" : state.index.causes[episode.causes[0]][1];
  return [
    back,
    element(
      "div",
      { class: "title" },
      element("h3", {}, `${episode.query} `, element("span", { class: `outcome ${outcome}`, text: `${episode.success ? "✓" : "✗"} ${heading}` })),
      element("span", { class: "muted", text: facts.filter(Boolean).join(" · ") }),
    ),
    element("div", { class: `verdict ${outcome}` }, ...lines),
    element(
      "div",
      { class: "columns" },
      element("div", { class: "chat" }, ...record.messages.map((message) => showMessage(message, page))),
      showSide(page, record),
    ),
  ];
}

function showSide(page, record) {
  const task = page.tasks[record.task];
  const expected = task.expected.map((game) => showGame(page.games[game], ""));
  const bookings = record.bookings.map(([game, right, violated]) =>
    showGame(page.games[game], right ? "✓ as expected" : `✗ ${violated.length ? `violates ${violated.join(", ").toLowerCase()}` : "not expected"}`, !right),
  );
  const nothing = (text) => element("div", { class: "muted", text });
  const section = (title, ...children) => element("section", {}, element("h4", { text: title }), ...children);
  const constraints = task.request.map(([name, value]) => element("div", {}, element("dt", { text: name }), element("dd", { text: value })));
  return element(
    "div",
    { class: "side" },
    section("The request", element("dl", {}, ...constraints)),
    section("Expected bookings", ...(expected.length ? expected : [nothing("nothing: no game satisfies the request")])),
    section("Bookings made", ...(bookings.length ? bookings : [nothing("none")])),
    section("Record", nothing(`seed ${record.seed}, ${record.wall_s.toFixed(1)} s`)),
  );
}

function showGame(game, mark, wrong = false) {
  const card = element("div", { class: `game${wrong ? " wrong" : ""}` });
  if (!game.home) {
    card.append(`Game ${game.id} does not exist`);
    return card;
  }
  card.append(
    element("div", { class: "teams", text: `${game.home} – ${game.away}` }),
    element("div", { class: "facts-line", text: `${game.weekday} ${game.date} · ${game.city}` }),
    element("div", { class: "facts-line", text: `game ${game.id} · ${game.price}` }),
  );
  if (mark) card.append(element("div", { class: `outcome ${wrong ? "failure" : "success"}`, text: mark }));
  return card;
}

// Browsers take seconds to lay out half a megabyte, so that what is very long is shown in full only when asked for.
function showText(text) {
  const long = text.length > LONG;
  const shown = element("div", { class: `text${long ? " long" : ""}`, text: cut(text, VERY_LONG), dir: "auto", ...(long && { tabindex: "0" }) });
  if (text.length <= VERY_LONG) return shown;
  const more = element("button", { type: "button", class: "more", text: `Show all ${text.length.toLocaleString("en")} characters` });
  more.addEventListener("click", () => {
    shown.textContent = text;
    more.remove();
    shown.focus();
  });
  return element("div", {}, shown, more);
}

function cut(text, length) {
  const inPair = /[\uD800-\uDBFF]/.test(text.charAt(length - 1));
  return text.slice(0, inPair ? length - 1 : length);
}

function showMessage(message, page) {
  const text = message.text === undefined ? null : page.texts[message.text];
  const card = element("div", { class: `message ${["system", "user", "assistant", "tool"].includes(message.role) ? message.role : ""}` });
  if (message.role !== "tool") card.append(element("div", { class: "role", text: message.role }));
  for (const [name, place] of Object.entries(message.extras || {})) {
    card.append(disclose(name.replaceAll("_", " "), showText(page.texts[place])));
  }
  if (message.role === "system" && text !== null) card.append(disclose("Show the system prompt", showText(text)));
  else if (message.role === "tool" && text !== null) card.append(showResult(text));
  else if (text !== null) card.append(showText(text));
  for (const call of message.calls || []) card.append(showCall(call, page.texts[call.arguments]));
  return card;
}

function showCall(call, written) {
  const shown = element("div", { class: "call" }, element("span", { class: "name", text: call.name || "(no name)" }));
  shown.append(element("span", { class: "arguments", dir: "auto", text: ` ${written}` }));
  if (call.error) shown.append(element("span", { class: "tag error", text: call.error }));
  for (const repair of call.repairs || []) shown.append(element("span", { class: "tag", text: `mended: ${repair}` }));
  return shown;
}

// Results are JSON in the language of the tools; whatever they hold is laid out by its shape, and kept as it was beneath.

function showResult(text) {
  const result = element("div", { class: "result" });
  let data = null;
  try {
    data = JSON.parse(text);
  } catch {
    data = null;
  }
  if (data === null || typeof data !== "object" || Array.isArray(data)) {
    result.append(showText(text));
    return result;
  }
  const plain = element("dl", {});
  const tables = [];
  for (const [key, value] of Object.entries(data)) {
    if (Array.isArray(value) && value.length && value.every((row) => row && typeof row === "object")) tables.push([key, value]);
    else plain.append(element("dt", { text: key }), element("dd", { text: typeof value === "object" ? JSON.stringify(value) : String(value), dir: "auto" }));
  }
  if (plain.children.length) result.append(plain);
  for (const [key, rows] of tables) result.append(disclose(`${key} (${rows.length})`, makeTable(key, rows)));
  result.append(disclose("as sent", showText(text)));
  return result;
}

function makeTable(key, rows) {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const cell = (value) => (value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value));
  const body = rows.map((row) => element("tr", {}, ...columns.map((column) => element("td", { text: cell(row[column]) }))));
  const head = element("tr", {}, ...columns.map((column) => element("th", { scope: "col", text: column })));
  const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": key }, table);
}

function toList() {
  byId("list").focus({ preventScroll: true });
  byId("episodes").scrollIntoView();
}

// Beginning.

function openFromAddress() {
  const [, run, language, query, trial] = location.hash.split("/");
  const found = state.index.episodes.find(
    (each) => String(each.run) === run && each.language === language && each.query === query && String(each.trial) === trial,
  );
  if (found) open(found, true);
}

function followFilter(button) {
  const form = byId("filters");
  form.reset();
  for (const name of ["run", "template", "language", "cause"]) form.elements[name].value = button.dataset[name] || "";
  applyFilters();
  toList();
}

async function start() {
  byId("run-choice")?.addEventListener("change", (event) => {
    for (const part of document.querySelectorAll(".run")) part.hidden = part.dataset.run !== event.target.value;
  });
  if (!byId("data")) return;
  if (typeof DecompressionStream === "undefined") {
    byId("count").textContent = "This browser is too old to unpack the conversations.";
    return;
  }
  packed = JSON.parse(byId("data").textContent).pages;
  state.index = await unpack("index");
  state.index.episodes = state.index.episodes.map(asEpisode);
  const form = byId("filters");
  fillFilters(form);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", applyFilters);
  form.addEventListener("reset", () => setTimeout(applyFilters));
  byId("list").addEventListener("keydown", onListKey);
  byId("conversation").addEventListener("keydown", (event) => event.key === "Escape" && toList());
  byId("previous").addEventListener("click", () => showPage(state.page - 1));
  byId("next").addEventListener("click", () => showPage(state.page + 1));
  for (const button of document.querySelectorAll("[data-filter]")) button.addEventListener("click", () => followFilter(button));
  addEventListener("hashchange", openFromAddress);
  applyFilters();
  openFromAddress();
}

start();

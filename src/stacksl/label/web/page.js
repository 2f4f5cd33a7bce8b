"use strict";
// Sessions and news for all pages, and the page of one annotator. An answer is kept in the browser (localStorage) until the server has
// it in the ledger: `held` may still be undone, `outbox` is on its way. The ledger takes a repetition once.

const $ = (name, at = document) => at.querySelector(name);
const $$ = (name, at = document) => [...at.querySelectorAll(name)];
const say = (sentence) => { $("#said").textContent = sentence; };

async function enter() {
  const secret = location.hash.slice(1);
  if (!secret) return false;
  history.replaceState(null, "", location.pathname);
  try {
    const reply = await fetch("/enter", post({ secret }));
    if (reply.ok) { location.reload(); return true; }
    say((await reply.json()).sentence);
  } catch { say("The server cannot be reached: open the link again later."); }
  return false;
}

function post(body, more = {}) {
  const csrf = $("meta[name=csrf]")?.content ?? "";
  const headers = { "Content-Type": "application/json", "X-CSRF-Token": csrf };
  return { method: "POST", headers, body: JSON.stringify(body), ...more };
}

// Calls `look` every two seconds while the page is shown, and when it is shown again.
function follow(look) {
  const shown = () => { if (!document.hidden) look(); };
  document.addEventListener("visibilitychange", shown);
  setInterval(shown, 2000);
}

// What is kept in the browser ------------------------------------------------------------------

const place = `stacksl:${document.body.dataset.run}:${document.body.dataset.who}`;
let memory = null; // where the browser keeps nothing

function load() {
  let kept = memory;
  try { kept = JSON.parse(localStorage.getItem(place)); } catch { /* the memory's */ }
  return kept ?? { held: null, outbox: [], later: [] };
}

function change(how) {
  const kept = load();
  how(kept);
  memory = kept;
  try { localStorage.setItem(place, JSON.stringify(kept)); } catch { /* full, or forbidden */ }
  return kept;
}

// Questions ------------------------------------------------------------------------------------

const taken = new Set(); // keys whose answers the server has
let current = null, timer = null, sending = false, finished = false;
let marked = null; // the class that Enter takes

function open() {
  const kept = load();
  const gone = new Set([...taken, ...kept.outbox.map((each) => each.key), kept.held?.key]);
  const rows = $$("#rows article").filter((row) => !gone.has(row.dataset.key));
  const last = (row) => kept.later.indexOf(row.dataset.key);
  return rows.sort((a, b) => last(a) - last(b)); // stable; -1 where it was not put off
}

function show() {
  const rows = open();
  if (!rows.includes(current)) {
    if (current) current.hidden = true;
    current = rows[0] ?? null;
    if (current) ask(current);
  }
  $("#stage").hidden = !current;
  $("#idle").hidden = Boolean(current) || finished;
  $("#finished").hidden = !finished;
  $("#left").textContent = rows.length;
  $("#undo").disabled = !load().held;
}

function ask(row) {
  row.hidden = false;
  const count = Number(row.dataset.count), own = $("ol", row), shared = $("#shared");
  if (shared) {
    shared.hidden = Boolean(own);
    if (!own) $$("li", shared).forEach((each, n) => { each.dataset.out = n >= count ? "1" : ""; });
  }
  $("#pick").hidden = !filtered(row);
  $("#key").textContent = row.dataset.key;
  const { draft } = load();
  $("#filter").value = "";
  for (const id of ["note", "right"]) $(`#${id}`).value = draft?.key === row.dataset.key ? draft[id] : "";
  if (draft) change((kept) => { kept.draft = null; });
  narrow();
  $("#stage").hidden = false;
  reach();
  if (filtered(row) && matchMedia("(pointer: fine)").matches) $("#filter").focus();
  else $(".prompt", row).focus({ preventScroll: true });
  scrollTo(0, 0);
}

// A text is reached by Tab where it scrolls.
const reach = () => $$(".prompt").forEach((each) => { each.tabIndex = each.scrollHeight > each.clientHeight ? 0 : -1; });
const list = (row = current) => $("ol", row) ?? $("#shared");
const buttons = () => $$("li:not([hidden]) button", list());
const mark = (button) => $("kbd", button).textContent;

// Whether one key cannot name each option: more than 26 of them, or numbers above 9.
function filtered(row) {
  const count = Number(row.dataset.count);
  return count > 26 || (count > 9 && /\d/.test(mark($("button", list(row)))));
}

const plain = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();

function narrow() {
  const typed = plain($("#filter").value).trim(), words = typed.split(/\s+/);
  let best = null, grade = 0;
  for (const each of $$("li", list())) {
    const button = $("button", each), name = plain($(".text", button).textContent);
    const text = `${name} ${plain($("small", button)?.textContent ?? "")}`;
    const number = /^\d+$/.test(typed) && mark(button).startsWith(typed);
    each.hidden = each.dataset.out === "1" || !(number || words.every((w) => text.includes(w)));
    const fit = mark(button) === typed || name === typed ? 2 : Number(name.startsWith(typed));
    if (!each.hidden && fit > grade) [best, grade] = [button, fit];
  }
  const shown = buttons();
  pointAt(typed && filtered(current ?? $("#rows article")) ? best ?? shown[0] : null);
  const count = `${shown.length} of ${current?.dataset.count ?? ""}`;
  $("#found").textContent = typed ? [marked && named(marked), count].filter(Boolean).join(" · ") : "";
}

const named = (button) => button.innerText.replace(/\s+/g, " ");

function pointAt(button) {
  marked?.classList.remove("marked");
  marked = button ?? null;
  marked?.classList.add("marked");
  marked?.scrollIntoView({ block: "nearest" });
  if (marked) $("#found").textContent = named(marked);
}

// Answers --------------------------------------------------------------------------------------

// Hold what was done with the current question: it may be undone until the next.
function hold(what) {
  const key = current.dataset.key;
  change((kept) => {
    if (kept.held) kept.outbox.push(kept.held);
    kept.held = { key, ...what };
    kept.later = kept.later.filter((each) => each !== key);
  });
  show();
  send();
  clearTimeout(timer);
  if (!current) timer = setTimeout(release, 5000); // nothing follows: time for an undo
}

const typed = (name) => $(name).value.toWellFormed?.().trim() ?? $(name).value.trim();

function choose(kind, position = null) {
  if (!current) return;
  const text = kind === "none" ? typed("#right") : "", note = typed("#note");
  const options = $$("button", list()).map((b) => plain($(".text", b).textContent).trim());
  if (text && options.includes(plain(text))) {
    say("The right answer is one of the options: choose that option.");
    return;
  }
  say("");
  hold({ kind, position, text: text || null, note: note || null });
}

function skip(why) {
  $("#why").close();
  say("");
  if (current) hold({ why, note: typed("#note") || null });
}

function undo() {
  const { key, note, text } = load().held ?? {};
  if (!key) return;
  clearTimeout(timer);
  const draft = { key, note: note ?? "", right: text ?? "" };  // typed once, and not to be typed again
  change((kept) => { kept.held = null; kept.draft = draft; kept.later = kept.later.filter((each) => each !== key); });
  const row = $$("#rows article").find((each) => each.dataset.key === key);
  if (current) current.hidden = true;
  current = row ?? null;
  if (row) ask(row);
  show();
}

function release() {
  change((kept) => { if (kept.held) kept.outbox.push(kept.held); kept.held = null; });
  show();
  send();
}

function later() {
  if (!current) return;
  const row = current;
  change((kept) => {
    kept.later = [...kept.later.filter((each) => each !== row.dataset.key), row.dataset.key];
  });
  row.hidden = true;
  current = null;
  show();
}

const SAID = {
  kept: "Another answer to this question counts: yours was kept as well.",
  gone: "A question was withdrawn: your answer to it is not needed.",
  refused: "An answer did not fit its question and was not taken: please give it again.",
};

const path = (held) => ("why" in held ? "/skip" : "/answer");

async function send() {
  if (sending) return;
  sending = true;
  let wait = 0;
  try {
    for (let first; (first = load().outbox[0]); ) {
      const reply = await fetch(path(first), post(first));
      const { state, sentence } = await reply.json();
      if (reply.status === 200 || reply.status === 422) {
        if (state in SAID && !("why" in first)) say(SAID[state]);
        else if (reply.status === 422) say(SAID.refused);
        if (reply.status === 200 && state !== "refused") taken.add(first.key);
        change((kept) => { kept.outbox = kept.outbox.filter((each) => each.key !== first.key); });
        show();
        continue;
      }
      if (reply.status !== 202) say(sentence);
      if (reply.status === 401 || reply.status === 403) { wait = null; break; }
      wait = reply.status === 202 ? 500 : 5000;
      break;
    }
    if (wait === 0 && $("#said").textContent.startsWith("No connection")) say("");
  } catch {
    const count = load().outbox.length;
    say(`No connection: ${count} ${count === 1 ? "answer is" : "answers are"} kept in this browser.`);
    wait = 3000;
  }
  sending = false;
  if (wait) setTimeout(send, wait);
  else if (open().length < 3) refresh();
}

async function refresh(here = false) {
  let reply;
  try { reply = await fetch(here ? "/rows?here=1" : "/rows"); } catch { return; }
  if (reply.status === 401) { say((await reply.json()).sentence); return; }
  if (!reply.ok) return;
  const fresh = new DOMParser().parseFromString(await reply.text(), "text/html");
  const rows = new Map($$("article", fresh).map((row) => [row.dataset.key, row]));
  const answered = new Set([...load().outbox, load().held].map((each) => each?.key));
  for (const row of $$("#rows article")) {
    const key = row.dataset.key;
    if (!rows.delete(key) && !answered.has(key)) row.remove(); // answered, or withdrawn
  }
  if (current && !current.isConnected) current = null;
  for (const row of rows.values()) $("#rows").append(document.adoptNode(row));
  note($(".state", fresh));
  show();
}

function note(state) {
  const told = state.dataset;
  finished = told.state === "finished";
  $("#done").textContent = told.answered;
  if (told.state === "failed") say("The run has stopped: tell its owner. Answers given here are kept in this browser.");
}

// Keys -----------------------------------------------------------------------------------------

function command(key) {
  const act = { "0": () => choose("none"), "?": () => choose("ambiguous"),
    "!": () => choose("broken"), "+": () => $("#note").focus(), ">": later,
    "-": () => $("#why").showModal(), Backspace: undo }[key];
  act?.();
  return Boolean(act);
}

function move(by) {
  const all = buttons(), from = filtered(current) ? marked : document.activeElement;
  const to = all[(all.indexOf(from) + by + all.length) % all.length] ?? all[0];
  if (filtered(current)) pointAt(to);
  else to?.focus();
}

function pressed(event) {
  if (event.altKey || event.metaKey || event.ctrlKey || event.isComposing || finished) return;
  if ($("#why").open) {
    const reason = $$("#why [data-why]")[Number(event.key) - 1];
    if (reason && !event.repeat) { event.preventDefault(); skip(reason.dataset.why); }
    return;
  }
  const field = event.target.closest("input"), filter = $("#filter");
  if (field && field !== filter) {
    if (event.key === "Enter" || event.key === "Escape") {
      event.preventDefault();
      if (current) (filtered(current) ? filter : $(".prompt", current)).focus();
    }
    return;
  }
  if (event.key === "Backspace" && !filter.value && !event.repeat) { event.preventDefault(); undo(); return; }
  if (!current || event.repeat && !event.key.startsWith("Arrow")) return;
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    move(event.key === "ArrowDown" ? 1 : -1);
  } else if (filtered(current)) {
    if (event.key === "Enter" && marked && (field || !event.target.closest("button"))) { event.preventDefault(); marked.click(); }
    else if (event.key === "Escape") { filter.value = ""; narrow(); }
    else if (!filter.value && command(event.key)) event.preventDefault();
    else if (!field && /^[\p{L}\p{N}]$/u.test(event.key)) filter.focus(); // the key goes there
  } else if (event.key !== "Enter" && event.key !== " ") {
    const named = buttons().find((button, n) => mark(button) === event.key.toUpperCase()
      || String(n + 1) === event.key);
    if (named && buttons().length <= 26) { event.preventDefault(); named.click(); }
    else if (command(event.key)) event.preventDefault();
  }
}

function clicked(event) {
  const button = event.target.closest("button");
  if (!button || event.detail > 1) return; // the second click of a double click
  if (button.dataset.position) choose("label", Number(button.dataset.position));
  else if (button.dataset.kind) choose(button.dataset.kind);
  else if (button.dataset.why) skip(button.dataset.why);
  else ({ undo, later, leave, skip: () => $("#why").showModal(), stay: () => $("#why").close() })[button.id]?.();
}

async function leave() {
  if (document.body.dataset.who) release();
  const reply = await fetch("/leave", post({})).catch(() => null);
  if (reply?.ok) { current = null; location.reload(); } // no draft stays after signing out
}

// Rows go to others while nobody is here: who moves or types is, and gets rows again.
let moved = 0;
function back() {
  if (current || document.hidden || Date.now() - moved < 5000) return;
  moved = Date.now();
  refresh(true);
}

function label() {
  for (const sign of ["pointermove", "pointerdown", "keydown", "visibilitychange"]) document.addEventListener(sign, back);
  note($(".state"));
  document.addEventListener("keydown", pressed);
  document.addEventListener("click", clicked);
  $("#filter").addEventListener("input", narrow);
  addEventListener("storage", () => { show(); refresh(); }); // another tab, which may have sent
  addEventListener("online", send);
  addEventListener("resize", reach);
  addEventListener("pagehide", () => {
    change((kept) => { if (kept.held) kept.outbox.push(kept.held); kept.held = null; });
    if (current) change((kept) => { kept.draft = { key: current.dataset.key, note: $("#note").value, right: $("#right").value }; });
    const first = load().outbox[0];
    if (first) fetch(path(first), post(first, { keepalive: true })).catch(() => {});
  });
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
  if ($("#guide") && matchMedia("(max-width: 70rem)").matches) $("#guide").open = false;
  follow(() => { if (!finished) refresh(); });
  show();
  send();
}

// The owner's page ------------------------------------------------------------------------------

let question = null; // what the owner is asked to agree to
let clicking = false, late = false; // a click needs its button to be there until it is released
let last = ""; // the numbers that are shown

async function figures() {
  const reply = await fetch("/rows").catch(() => null);
  if (!reply?.ok) { say("No connection, or the session has expired: these numbers are old."); return; }
  if ($("#said").textContent.startsWith("No connection, or")) say("");
  const text = await reply.text();
  late = clicking;
  if (late || text === last) return;
  last = text;
  const fresh = new DOMParser().parseFromString(text, "text/html");
  const held = document.activeElement?.dataset; // the focus stays where it was
  $("#figures").replaceChildren(...fresh.body.childNodes);
  $(".forms").hidden = $(".doing").dataset.state !== "open";
  if (held?.act) $$("#figures button").find((b) => b.dataset.name === held.name && (b.dataset.act === held.act || !held.name))?.focus();
}

async function act(body, file = null) {
  question = null;
  $("#asked").hidden = $("#invited").hidden = true;
  const reply = await (file ? upload(file) : fetch("/owner", post(body))).catch(() => null);
  const told = await reply?.json().catch(() => null);
  if (told?.state === "asked") {
    question = { ...body, agreed: true };
    $("#question").textContent = told.sentence;
    $("#asked").hidden = false;
    $("#agree").focus();
  } else if (told?.link) {
    $("#linked").textContent = `Link for ${told.name}, works once, in one browser:`;
    $("#link").value = `${location.origin}/#${told.link}`;
    $("#invited").hidden = false;
    $("#link").select();
  }
  say(told ? told.state === "asked" ? "" : told.sentence ?? "" : "No connection: nothing was changed.");
  figures();
  return told?.state === "done";
}

// The bytes of a filled-in sheet.
function upload(file) {
  const headers = { ...post().headers, "Content-Type": "application/octet-stream" };
  return fetch(`/sheet?name=${encodeURIComponent(file.name)}`, { method: "POST", headers, body: file });
}

function owner() {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button?.dataset.act) act({ act: button.dataset.act, name: button.dataset.name ?? null });
    else if (button?.id === "agree" && question) act(question);
    else if (button?.id === "cancel") $("#asked").hidden = true;
    else if (button?.id === "leave") leave();
  });
  document.addEventListener("submit", async (event) => {
    event.preventDefault();
    const form = event.target, file = $("input[type=file]", form)?.files[0];
    await act({ act: form.dataset.act, ...Object.fromEntries(new FormData(form)) }, file);
    if (file) form.reset();
  });
  for (const name of ["pointerdown", "pointerup", "pointercancel"]) addEventListener(name, () => {
    clicking = name === "pointerdown";
    if (!clicking && late) figures();
  });
  follow(figures);
}

// The rows of a finished run ---------------------------------------------------------------------

function rows() {
  const box = $("#correct"), filter = $("#filter");
  let row = null; // the answer that is corrected
  const narrowed = () => {
    const words = plain(filter.value).split(/\s+/);
    for (const each of $$("li", box)) each.hidden = !words.every((word) => plain(each.textContent).includes(word));
  };
  const option = (text) => {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: text, dir: "auto" });
    button.dataset.value = text;
    const item = document.createElement("li");
    item.append(button);
    return item;
  };
  async function done(body) {
    const reply = await fetch("/owner", post(body)).catch(() => null);
    const told = await reply?.json().catch(() => null);
    say(told?.sentence ?? "No connection: nothing was changed.");
    return told?.state === "done";
  }
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button");
    if (button?.dataset.key || button?.dataset.item) {
      row = button;
      $("#unclear").hidden = !!row.dataset.item; // only a label can be given for free
      $("ol", box).replaceChildren(...JSON.parse(row.dataset.options ?? box.dataset.options).map(option));
      $("#of").textContent = $(".text", row.closest("tr")).textContent;
      filter.value = "";
      box.showModal();
    } else if (button?.dataset.value) {
      const value = button.dataset.value;
      box.close();
      const { key, item } = row.dataset;
      if (!await done({ act: key ? "correct" : "own", name: key ?? item, value, agreed: true })) return;
      if (!$("span", row.parentElement)) row.before(document.createElement("span"), " ");
      row.textContent = "Correct";
      $("span", row.parentElement).textContent = button.textContent;
      $("#changed").hidden = false;
    } else if (button?.id === "again") { if (await done({ act: "again" })) location.href = "/"; }
    else if (button?.id === "stay") box.close();
  });
  filter.addEventListener("input", narrowed);
  follow(() => fetch("/rows").catch(() => {})); // the server stays while they are read
}

addEventListener("hashchange", enter); // a new link in a tab that has the page already
if (document.body.dataset.who) enter().then(label);
else if (document.body.dataset.owner) enter().then(owner);
else if (document.body.dataset.rows) rows();
else enter();

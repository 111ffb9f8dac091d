// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// The script of all pages. A page works without it; the script adds what a cell says, the keyboard, and times that pass.
'use strict';

const body = document.body;
const tip = document.getElementById('tip');

// formatAge says how long ago a time was, as the command line does: 1h5m.
function formatAge(seconds) {
  const units = [['d', 86400, 'h', 3600], ['h', 3600, 'm', 60], ['m', 60, 's', 1]];
  for (const [unit, size, smaller, of] of units) {
    if (seconds >= size) {
      const rest = Math.floor(seconds % size / of);
      return Math.floor(seconds / size) + unit + (rest ? rest + smaller : '');
    }
  }
  return Math.max(0, Math.floor(seconds)) + 's';
}

// readClock returns now, or for a dump when that was taken.
function readClock() {
  return 'live' in body.dataset ? Date.now() / 1000 : Number(body.dataset.taken);
}

function ageOf(element) {
  return formatAge(readClock() - Number(element.dataset.s));
}

const timeOfDay = new Intl.DateTimeFormat(undefined, {hour: '2-digit', minute: '2-digit'});
const dayAndTime = new Intl.DateTimeFormat(undefined, {weekday: 'short', day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit'});
const dayOnly = new Intl.DateTimeFormat(undefined, {day: 'numeric', month: 'short'});

// formatLocal says a time in the time zone of the reader, and how far it is.
function formatLocal(unix) {
  const at = new Date(unix * 1000);
  const now = readClock();
  const isToday = at.toDateString() === new Date(now * 1000).toDateString();
  const far = Math.abs(now - unix) < 1 ? 'now' : unix > now ? 'in ' + formatAge(unix - now) : formatAge(now - unix) + ' ago';
  return (isToday ? timeOfDay : dayAndTime).format(at) + ' (' + far + ')';
}

// showAges replaces times by how long ago they were. The time itself stays as the title.
function showAges() {
  for (const time of document.querySelectorAll('time[data-s]')) {
    if (time.dataset.s) {
      time.title = time.title || time.textContent;
      time.textContent = ageOf(time);
    }
  }
  for (const time of document.querySelectorAll('time[datetime]')) {
    time.title = time.title || time.textContent;
    time.textContent = formatLocal(Date.parse(time.dateTime) / 1000);
  }
  for (const text of document.querySelectorAll('text[data-t]')) {
    text.textContent = ('day' in text.dataset ? dayOnly : timeOfDay).format(new Date(Number(text.dataset.t) * 1000));
  }
}

// --- cells of nodes

function describeCell(cell) {
  const reasons = document.getElementById('reasons');
  const [rollout, stage, reason, text] = reasons.children[Number(cell.dataset.r)].textContent.split('\n');
  const words = [[rollout, stage].filter(Boolean).join(': '), [reason, text].filter(Boolean).join(': ')];
  if (cell.dataset.s) {
    words.push('for ' + ageOf(cell));
  }
  const name = document.createElement('b');
  name.textContent = cell.dataset.n + ' ' + cell.className.replace(/ ?\bat\b/, '').replace('-', ' ');
  tip.replaceChildren(name, words.filter(Boolean).join(' · '));
  tip.hidden = false;
}

function cellOf(event) {
  return event.target instanceof Element ? event.target.closest('.cells i') : null;
}

function openCell(cell) {
  location.href = body.dataset.base + '/nodes/' + encodeURIComponent(cell.dataset.n);
}

// selectCell moves the mark of the keyboard.
function selectCell(cell) {
  for (const old of document.querySelectorAll('.cells i.at')) {
    old.classList.remove('at');
  }
  cell.classList.add('at');
  cell.scrollIntoView({block: 'nearest'});
  tip.setAttribute('role', 'status');
  describeCell(cell);
}

function moveInCells(event) {
  const grid = event.target instanceof Element ? event.target.closest('.cells') : null;
  if (!grid || !grid.children.length) {
    return;
  }
  const cells = grid.children;
  const at = Array.prototype.findIndex.call(cells, (cell) => cell.classList.contains('at'));
  let columns = 1;
  while (columns < cells.length && cells[columns].offsetTop === cells[0].offsetTop) {
    columns++;
  }
  const steps = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -cells.length, End: cells.length};
  if (event.key === 'Enter' && at >= 0) {
    openCell(cells[at]);
  } else if (event.key in steps) {
    selectCell(cells[Math.min(cells.length - 1, Math.max(0, (at < 0 ? 0 : at + steps[event.key])))]);
  } else {
    return;
  }
  event.preventDefault();
}

document.addEventListener('mouseover', (event) => {
  const cell = cellOf(event);
  if (cell) {
    describeCell(cell);
  } else {
    tip.hidden = true;
  }
});
document.addEventListener('click', (event) => {
  const cell = cellOf(event);
  if (cell) {
    openCell(cell);
  }
});
document.addEventListener('keydown', moveInCells);
document.addEventListener('focusout', () => { tip.hidden = true; });

// --- filters are in the address, and apply while they are changed

const filters = document.querySelector('.filters');
let filtered = 0;

async function applyFilters() {
  const query = new URLSearchParams(new FormData(filters));
  for (const [key, value] of [...query]) {
    if (!value) {
      query.delete(key);
    }
  }
  const mine = ++filtered;
  const address = filters.action + '?' + query;
  const answer = await fetch(address, {headers: {Accept: 'text/html'}});
  const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
  if (mine === filtered && answer.ok) {
    history.replaceState(null, '', address);
    replaceParts(page);
  }
}

if (filters) {
  let timer = 0;
  const applySoon = () => {
    clearTimeout(timer);
    timer = setTimeout(applyFilters, 150);
  };
  filters.addEventListener('input', applySoon);
  filters.addEventListener('change', applySoon);
  filters.addEventListener('submit', (event) => {
    event.preventDefault();
    applyFilters();
  });
}

// --- find anything

const find = document.getElementById('find');
const found = document.getElementById('found');
let asked = 0;

async function showFound() {
  const query = find.value.trim();
  const mine = ++asked;
  if (!query) {
    found.hidden = true;
    return;
  }
  const answer = await fetch(find.form.action + '?q=' + encodeURIComponent(query), {headers: {Accept: 'application/json'}});
  const hits = (await answer.json()).hits || [];
  if (mine !== asked) {
    return;
  }
  found.replaceChildren(...hits.slice(0, 12).map((hit) => {
    const link = document.createElement('a');
    link.href = body.dataset.base + '/' + hit.path;
    link.textContent = hit.name + ' · ' + hit.kind + (hit.text ? ' · ' + hit.text : '');
    return link;
  }));
  if (!hits.length) {
    const none = document.createElement('span');
    none.textContent = 'Nothing has “' + query + '” in its name.';
    found.append(none);
  }
  found.hidden = false;
}

function moveInFound(event) {
  const links = [...found.querySelectorAll('a')];
  const at = links.findIndex((link) => link.classList.contains('at'));
  const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
  if (step && links.length) {
    links.forEach((link) => link.classList.remove('at'));
    links[Math.min(links.length - 1, Math.max(0, at + step))].classList.add('at');
    event.preventDefault();
  } else if (event.key === 'Escape') {
    find.value = '';
    found.hidden = true;
    find.blur();
    event.stopPropagation();
  }
}

find.addEventListener('input', showFound);
find.addEventListener('keydown', moveInFound);
find.form.addEventListener('submit', (event) => {
  const chosen = found.querySelector('a.at');
  if (chosen) {
    event.preventDefault();
    location.href = chosen.href;
  }
});
document.addEventListener('click', (event) => {
  found.hidden = found.hidden || !find.form.contains(event.target);
});

// --- keys of a list: j and k, Enter opens the link that has the focus, Escape goes back

document.addEventListener('keydown', (event) => {
  const isTyping = event.target instanceof Element && event.target.closest('input, select, textarea, dialog');
  if (isTyping || event.ctrlKey || event.altKey || event.metaKey) {
    return;
  }
  const rows = [...document.querySelectorAll('a[data-row]')].filter((row) => row.checkVisibility());
  const step = {j: 1, k: -1}[event.key];
  if (step && rows.length) {
    const at = rows.indexOf(document.activeElement);
    rows[at < 0 ? 0 : Math.min(rows.length - 1, Math.max(0, at + step))].focus();
  } else if (event.key === '/') {
    find.focus();
    event.preventDefault();
  } else if (event.key === 'Escape' && body.dataset.page !== 'fleet') {
    history.back();
  }
});

// --- a link to text that is shown in its place

document.addEventListener('click', async (event) => {
  const link = event.target instanceof Element ? event.target.closest('a[data-load]') : null;
  if (!link) {
    return;
  }
  event.preventDefault();
  const text = document.createElement('pre');
  text.tabIndex = 0;
  text.textContent = await (await fetch(link.href, {headers: {Accept: 'text/plain'}})).text();
  link.replaceWith(text);
});

// --- a manifest that is dropped on the page of the plan

const drop = document.getElementById('drop');
let manifest = null;

async function showPlan(file) {
  manifest = await file.text();
  const answer = await fetch(drop.dataset.action, {method: 'POST', body: manifest, headers: {Accept: 'text/html'}});
  const text = await answer.text();
  replaceParts(new DOMParser().parseFromString(text, 'text/html'));
}

if (drop) {
  drop.querySelector('input').addEventListener('change', (event) => {
    if (event.target.files.length) {
      showPlan(event.target.files[0]);
    }
  });
  document.addEventListener('dragover', (event) => {
    event.preventDefault();
    drop.classList.add('over');
  });
  document.addEventListener('dragleave', () => drop.classList.remove('over'));
  document.addEventListener('drop', (event) => {
    event.preventDefault();
    drop.classList.remove('over');
    if (event.dataTransfer.files.length) {
      showPlan(event.dataTransfer.files[0]);
    }
  });
}

// --- changes: each shows the command that it stands for, and asks

const ask = document.getElementById('ask');
let change = '';

document.addEventListener('click', (event) => {
  const button = event.target instanceof Element ? event.target.closest('button[data-change]') : null;
  if (button) {
    change = button.dataset.change;
    document.getElementById('ask-command').textContent = button.dataset.command;
    document.getElementById('ask-answer').textContent = '';
    document.getElementById('ask-yes').disabled = false;
    ask.showModal();
  }
});
document.getElementById('ask-yes').addEventListener('click', async (event) => {
  const answer = document.getElementById('ask-answer');
  event.target.disabled = true;
  answer.textContent = 'running…';
  try {
    const response = await fetch(body.dataset.base + '/changes', {method: 'POST', body: change, headers: {'Content-Type': 'application/json'}});
    answer.textContent = response.ok ? (await response.json()).output : 'It was refused: ' + await response.text();
  } catch (error) {
    answer.textContent = 'The command kubectl skyhook ui does not answer: ' + error.message;
  }
});

// --- live: the parts of the page that changed are replaced

const live = document.getElementById('live');
let shown = body.dataset.version;
let wanted = shown;
let isLoading = false;
let loadedAt = -Infinity;
let lostAt = 0;
let events = null;

function sayLive(text, isOff) {
  if (live.textContent !== text) {
    live.textContent = text;
  }
  live.classList.toggle('off', isOff);
}

// replaceParts takes over what differs from a newer page. What has the focus or was opened stays so.
function replaceParts(page) {
  for (const part of document.querySelectorAll('[data-part]')) {
    if (!page.getElementById(part.id)) {
      part.remove();
    }
  }
  let last = null;
  for (const part of page.querySelectorAll('[data-part]')) {
    const old = document.getElementById(part.id);
    if (!old) {
      const parent = document.getElementById(part.parentElement.id);
      if (parent) {
        parent.insertBefore(part, last && last.parentElement === parent ? last.nextSibling : parent.firstChild);
      }
    } else if (old.innerHTML !== part.innerHTML) {
      replacePart(old, part);
    }
    last = document.getElementById(part.id);
  }
  showAges();
}

function replacePart(old, part) {
  const at = old.querySelector('.cells i.at');
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const open = Array.from(old.querySelectorAll('details[open][id]'), (details) => details.id);
  const path = focused ? pathTo(old, focused) : null;
  old.replaceChildren(...part.childNodes);
  for (const id of open) {
    const details = document.getElementById(id);
    if (details) {
      details.open = true;
    }
  }
  const again = path && path.reduce((element, index) => element && element.children[index], old);
  if (again) {
    again.focus({preventScroll: true});
  }
  const cell = at && old.querySelector('.cells i[data-n="' + CSS.escape(at.dataset.n) + '"]');
  if (cell) {
    cell.classList.add('at');
  }
}

// pathTo returns the places of an element and its parents, down from a part.
function pathTo(part, element) {
  const path = [];
  for (let e = element; e !== part; e = e.parentElement) {
    path.unshift(Array.prototype.indexOf.call(e.parentElement.children, e));
  }
  return path;
}

// loadNewer loads the page when there is a newer one, once in a second at most.
async function loadNewer() {
  if (isLoading || document.hidden) {
    return;
  }
  isLoading = true;
  try {
    while (shown !== wanted) {
      await new Promise((resolve) => setTimeout(resolve, loadedAt + 1000 - performance.now()));
      if (document.hidden) {
        break;
      }
      loadedAt = performance.now();
      const request = manifest === null ? {} : {method: 'POST', body: manifest};
      const answer = await fetch(location.href, {...request, headers: {Accept: 'text/html'}});
      const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
      const version = page.body.dataset.version;
      replaceParts(page);
      shown = version;
      if (Number(shown) >= Number(wanted)) {
        break;
      }
    }
  } catch {
    // the stream of events ends too, and says so
  } finally {
    isLoading = false;
  }
}

// follow listens to what changes while somebody sees the page. The first event of a new stream is the state of now.
function follow() {
  if (events) {
    events.close();
    events = null;
  }
  if (document.hidden) {
    return;
  }
  events = new EventSource(body.dataset.base + '/events');
  events.addEventListener('state', (event) => {
    const state = JSON.parse(event.data);
    lostAt = 0;
    wanted = String(state.version);
    if (state.problem) {
      sayLive('not up to date: ' + state.problem, true);
    } else {
      sayLive('live', false);
    }
    if (wanted !== shown) {
      loadNewer();
    }
  });
  events.addEventListener('error', (event) => {
    lostAt = lostAt || Date.now();
    if (event.target.readyState === EventSource.CLOSED) {
      sayLive('disconnected: run kubectl skyhook ui again and take its new address', true);
      return;
    }
    sayLive('disconnected since ' + new Date(lostAt).toLocaleTimeString() + ', trying again', true);
  });
}

if ('live' in body.dataset) {
  follow();
  document.addEventListener('visibilitychange', follow);
}

showAges();
setInterval(showAges, 1000);

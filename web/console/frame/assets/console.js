// What a page does with a script: it is kept up to date, and has keys. All else works without.
'use strict';
(() => {
  const $ = (css, from = document) => from.querySelector(css);
  const all = (css, from = document) => [...from.querySelectorAll(css)];
  const page = window.trustedTypes ? trustedTypes.createPolicy('farol', { createHTML: (text) => text }) : { createHTML: (text) => text };
  const store = (kind, name, value) => {
    try { if (value === undefined) return kind.getItem(name); kind.setItem(name, value); } catch { return null; }
  };

  // One sentence in ten seconds at most is read out.
  let next = null, quietUntil = 0;
  const say = (text) => {
    next = text;
    const wait = quietUntil - Date.now();
    setTimeout(() => {
      if (next === null || Date.now() < quietUntil) return;
      const at = $('#said');
      if (at) at.textContent = next;
      next = null;
      quietUntil = Date.now() + 10000;
    }, Math.max(wait, 0));
  };

  // Status marks, as the server makes them.
  const shapes = { Pending: ['○', 'waits'], Started: ['▶', 'runs'], Success: ['✓', 'good'], Failed: ['✕', 'bad'], Suspended: ['‖', 'held'], Cancelled: ['⊘', 'off'] };
  const mark = (status) => {
    const [shape, kind] = shapes[status] || ['•', 'off'];
    const out = document.createElement('span'), sign = document.createElement('span');
    out.className = 'mark ' + kind;
    sign.ariaHidden = 'true';
    sign.textContent = shape;
    out.append(sign, ' ' + status);
    return out;
  };

  // A page that cannot be brought up to date says so, and of when it is.
  let good = new Date();
  const old = (why) => {
    const text = `${why} This page shows what was at ${good.toLocaleTimeString('en-GB')}.`;
    const at = $('#old') || $('main').insertBefore(document.createElement('p'), $('main').firstChild);
    Object.assign(at, { id: 'old', className: 'note bad' });
    if (at.textContent === text) return;
    at.textContent = text;
    say(text);
  };
  const current = () => { good = new Date(); $('#old')?.remove(); };

  const same = (part) => part.innerHTML.replace(/value="form-[A-Z2-7]+"/g, ''); // but for the keys of forms
  const filled = (part) => all('input:not([type=hidden]), textarea', part).some((f) => f.value !== f.defaultValue || f.checked !== f.defaultChecked);
  // refresh takes the parts of this page that have changed from the server. What the pointer
  // is over does not change its length, and what is being filled in stays.
  let asked = 0, later = null;
  const refresh = async () => {
    if (paused() || document.hidden) { stale = true; return; }
    const wait = asked + 1500 - Date.now();
    if (wait > 0) { later ??= setTimeout(() => { later = null; refresh(); }, wait); return; }
    asked = Date.now();
    let text;
    try {
      const answer = await fetch(location.href, { headers: { 'X-Refresh': '1', Accept: 'text/html' } });
      if (answer.redirected || !answer.ok) { old(answer.redirected ? 'Your session has ended: load the page again to sign in.' : 'Farol cannot answer now.'); return; }
      text = await answer.text();
    } catch { old('Farol cannot be reached.'); return; }
    current();
    const now = new DOMParser().parseFromString(page.createHTML(text), 'text/html');
    for (const part of all('[data-part]')) {
      const other = part.id && now.getElementById(part.id);
      if (!other || same(other) === same(part) || filled(part)) continue;
      const typing = part.contains(document.activeElement) && document.activeElement.matches('input, select, textarea');
      const moves = part.matches(':hover') && all('tr, li, p', part).length !== all('tr, li, p', other).length;
      if (typing || moves) { stale = true; continue; }
      const open = all('details[open][id]', part).map((d) => d.id), focus = document.activeElement?.id;
      part.replaceChildren(...document.importNode(other, true).childNodes);
      open.forEach((id) => { const d = document.getElementById(id); if (d) d.open = true; });
      if (focus && document.activeElement === document.body) document.getElementById(focus)?.focus();
      ready(part);
    }
    $('main').dataset.every = now.querySelector('main')?.dataset.every || '';
    ahead = since(now.body);
    ages();
    document.title = now.title;
  };
  // How long ago something was is counted on, by the server's clock. What was to come stays at now.
  const since = (body) => Date.now() - (body.dataset.now || Date.now());
  let ahead = since(document.body);
  const rough = (s) => {
    const of = (n, unit) => `${Math.floor(n)} ${unit}${n >= 2 || n < 1 ? 's' : ''}`, day = 86400;
    return s < 60 ? Math.floor(s) + ' s' : s < 3600 ? Math.floor(s / 60) + ' min' : s < 2 * day ? of(s / 3600, 'hour') : s < 60 * day ? of(s / day, 'day')
      : s < 730 * day ? of(s / day / 30.44, 'month') : of(s / day / 365.25, 'year');
  };
  const left = (s) => {
    const of = (n, per, big, small) => `${Math.floor(n / per)}${big}${String(Math.floor(n % per / small[0])).padStart(2, '0')}${small[1]}`;
    return s < 60 ? Math.max(Math.floor(s), 0) + 's' : s < 3600 ? of(s, 60, 'm', [1, 's']) : s < 86400 ? of(s, 3600, 'h', [60, 'm']) : of(s, 86400, 'd', [3600, 'h']);
  };
  const ages = () => {
    for (const at of all('time[data-left]')) at.textContent = left((Date.parse(at.dateTime) - Date.now() + ahead) / 1000);
    for (const at of all('time:not([data-at],[data-left])')) {
      let s = (Date.now() - ahead - Date.parse(at.dateTime)) / 1000;
      at.toCome ??= s < 0;
      if (at.toCome) s = Math.min(s, 0);
      const text = s < -1 ? 'in ' + rough(-s) : s < 5 ? 'just now' : rough(s) + ' ago';
      if (at.textContent !== text) at.textContent = text;
    }
  };
  setInterval(() => { if (!document.hidden) ages(); }, 5000);

  // A page with data-every is fetched again after so many seconds, until it no longer says so.
  let stale = false;
  setInterval(() => {
    if (paused() || document.hidden) return;
    const waited = Date.now() - asked, every = 1000 * $('main').dataset.every;
    if (stale && waited >= 3000 || every && waited >= every) { stale = false; refresh(); }
  }, 1000);

  // Updates, and a way to stop them (WCAG 2.2.2).
  const paused = () => store(sessionStorage, 'farol-paused') === 'yes';
  const watch = document.body.dataset.watch;
  let stream = null, timer = null, lost = false;
  const item = (e) => {
    const i = JSON.parse(e.data);
    if (i.ended) { refresh(); return; }
    let changed = false; // what else the page shows of it is fetched
    for (const cell of all(`[data-item="${Number(i.id)}"] [data-label]`)) {
      const what = cell.dataset.label, text = { Stage: i.stage, Why: i.code }[what], was = cell.textContent.trim(), at = $('time', cell);
      if (what === 'Status' && !was.endsWith(i.status)) { cell.replaceChildren(mark(i.status)); cell.classList.add('fresh'); say(`Item ${i.id}: ${i.status} at ${i.stage}.`); changed = true; }
      else if (what === 'Since' && at) { at.title = at.dateTime = i.at; ages(); }
      else if (text !== undefined && was !== text) cell.textContent = text;
    }
    const shown = $('[data-state]');
    if (shown && shown.dataset.open === String(i.id) && shown.dataset.state !== `${i.stage}/${i.status}/${i.token}`) {
      say(`Item ${i.id}: ${i.status} at ${i.stage}.`);
      changed = true;
    }
    if (changed && $('main [data-part]')) refresh();
  };
  const progress = (e) => {
    const p = JSON.parse(e.data);
    for (const at of all('[data-progress]')) {
      const what = at.dataset.progress;
      if (what === 'current') {
        at.replaceChildren(...p.current.map((name) => { const li = document.createElement('li'); li.textContent = name; return li; }));
      } else if (what === 'percent') {
        at.hidden = p.percent < 0;
        if (p.percent >= 0) { at.value = p.percent; at.textContent = p.percent + ' %'; }
      } else if (at.textContent !== p[what]) at.textContent = p[what];
    }
  };
  const news = (e) => {
    const n = JSON.parse(e.data), at = $('#new');
    if (!at) return;
    at.hidden = n.count === 0;
    at.textContent = `${n.count}${n.more ? ' or more' : ''} new: show`;
  };
  const connect = () => {
    if (!watch || paused() || !window.EventSource) return;
    stream = new EventSource(watch);
    const open = () => { clearInterval(timer); timer = null; if (lost) { lost = false; refresh(); } };
    const error = () => { // it is opened again, unless it was refused
      if (stream.readyState === EventSource.CLOSED) timer ??= setInterval(refresh, 15000);
      else if (lost) refresh();
      lost = true;
    };
    for (const [name, f] of Object.entries({ item, progress, new: news, figures: refresh, open, error })) stream.addEventListener(name, f);
  };
  const stop = () => { stream?.close(); stream = null; clearInterval(timer); timer = null; };
  const updates = () => {
    const button = $('#updates');
    if (!button || !(watch || $('main').dataset.every)) return;
    button.hidden = false;
    button.textContent = paused() ? 'Resume updates' : 'Pause updates';
  };
  connect();
  addEventListener('pagehide', stop);
  addEventListener('pageshow', (e) => { if (e.persisted) { connect(); refresh(); } });
  document.addEventListener('visibilitychange', () => { if (!document.hidden && stale) { stale = false; refresh(); } });

  // What is only of use with a script.
  const ready = (from) => {
    updates();
    for (const b of all('[data-copy], [data-all], [data-help]', from)) b.hidden = false;
  };
  ready(document);
  const counted = () => {
    const n = all('input[name=ids]:checked').length;
    for (const at of all('[data-chosen]')) at.textContent = n === 1 ? '1 chosen' : `${n} chosen`;
  };
  document.addEventListener('click', (e) => {
    const copy = e.target.closest('[data-copy]');
    if (copy) {
      navigator.clipboard?.writeText(copy.dataset.copy).then(() => { copy.textContent = 'Copied'; say('Copied.'); }, () => say('This browser does not let a page copy.'));
    }
    if (e.target.closest('#updates')) {
      store(sessionStorage, 'farol-paused', paused() ? 'no' : 'yes');
      updates();
      if (paused()) stop(); else { connect(); refresh(); }
    }
    if (e.target.closest('[data-help]')) $('#help')?.showModal();
    const every = e.target.closest('[data-all]');
    if (every) {
      const boxes = all('input[name=ids]'), on = boxes.some((b) => !b.checked);
      boxes.forEach((b) => { b.checked = on; });
      counted();
    }
  });
  document.addEventListener('change', (e) => { if (e.target.name === 'ids') counted(); });
  document.addEventListener('submit', (e) => { // sent once
    const button = e.submitter;
    if (button && e.target.method === 'post') setTimeout(() => { button.disabled = true; setTimeout(() => { button.disabled = false; }, 5000); });
  });
  const narrow = matchMedia('(max-width: 900px)'), list = $('.pages details'); // a wide page has nothing to open its list with
  const fold = () => { if (list) list.open = !narrow.matches; };
  narrow.addEventListener('change', fold);
  fold();

  // Keys. They can be switched off (WCAG 2.1.4).
  const off = $('#keys-off');
  if (off) {
    off.checked = store(localStorage, 'farol-keys') === 'off';
    off.addEventListener('change', () => store(localStorage, 'farol-keys', off.checked ? 'off' : 'on'));
  }
  let go = 0, row = -1;
  const rows = () => all('main tbody tr').filter((r) => $('a[href]', r));
  const move = (by) => {
    const list = rows();
    if (!list.length) return;
    row = Math.min(Math.max(row + by, 0), list.length - 1);
    list.forEach((r, i) => r.classList.toggle('here', i === row));
    $('a[href]', list[row]).focus();
  };
  document.addEventListener('keydown', (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || off?.checked || e.target.closest('input:not([type=checkbox]), select, textarea, dialog')) return;
    const key = e.key;
    if (Date.now() - go < 1500) {
      go = 0;
      const to = all('[data-go]').find((a) => a.dataset.go === key);
      if (to) { e.preventDefault(); location.assign(to.href); }
      return;
    }
    if (key === 'g') go = Date.now();
    else if (key === '/') { e.preventDefault(); $('#q')?.focus(); }
    else if (key === 'j') move(1);
    else if (key === 'k') move(-1);
    else if (key === 'x' && row >= 0) { const box = $('input[name=ids]', rows()[row]); if (box) { box.checked = !box.checked; counted(); } }
    else if (key === '?') $('#help')?.showModal();
  });
})();

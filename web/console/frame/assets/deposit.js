// The page on which a bag is uploaded. The script reads of the tar what Farol needs to judge
// the bag, and then sends the tar in parts to the receiving bucket, with URLs that Farol signs.
// The parts that have arrived are listed by the bucket: so an upload goes on after the
// connection was lost, the page was loaded again, or on another day.
'use strict';
(() => {
  const $ = (id) => document.getElementById('deposit-' + id);
  const form = document.getElementById('deposit'), input = document.getElementById('tar'), institution = document.getElementById('institution');
  const MiB = 1 << 20, mostOutline = 12_400_000, mostMemory = 128 * MiB;
  if (!form) return;
  form.hidden = false;

  // What is shown. Names come from the tar: they are only ever texts.
  const show = (id, on) => { $(id).hidden = !on; };
  let spoken = 0, toSay = '', saying = null;
  const said = (text) => { // one sentence in ten seconds is read out, the last one
    toSay = text;
    saying ??= setTimeout(() => { saying = null; spoken = Date.now(); document.getElementById('deposit-said').textContent = toSay; }, Math.max(0, spoken + 10000 - Date.now()));
  };
  const report = (text) => { $('sentence').textContent = text; said(text); };
  const make = (kind, text) => { const e = document.createElement(kind); if (text) e.textContent = text; return e; };
  const plain = (text) => text.replace(/[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));
  const bytes = (n) => {
    let unit = 0;
    while (n >= 1024 && unit < 5) { n /= 1024; unit++; }
    return (unit ? n.toFixed(1) : n) + ' ' + ['bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'][unit];
  };
  const span = (s) => s < 90 ? Math.ceil(s) + ' seconds' : s < 5400 ? Math.round(s / 60) + ' minutes' : (s / 3600).toFixed(1) + ' hours';
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  const online = () => navigator.onLine ? Promise.resolve() : new Promise((done) => addEventListener('online', done, { once: true }));

  class Refused extends Error {} // trying again is of no use
  class Stopped extends Error {} // another file was chosen, or the upload given up

  // reason is whose fault it is that something ended: Farol's refusal, the file's, or this page's.
  const reason = (err) => {
    if (err instanceof Refused) return err.message.charAt(0).toUpperCase() + err.message.slice(1).replace(/\.$/, '') + '.';
    if (err instanceof DOMException && err.name.startsWith('Not')) return 'The file cannot be read. If it has changed, choose it again.';
    console.error(err);
    return 'This page has failed; the file is as it was. Load the page again and choose the file. What has arrived stays.';
  };

  // ask calls Farol. What may pass is tried again until it has.
  const ask = async (run, method, path, body) => {
    for (let wait = 1000; ; wait = Math.min(wait * 2, 60000)) {
      run.check();
      let answer = null, content = null;
      try {
        answer = await fetch('/api/v1/deposits' + path, { method, headers: body ? { 'Content-Type': 'application/json' } : {}, body: body && JSON.stringify(body) });
        content = answer.status === 204 ? {} : await answer.json();
      } catch { answer = null; }
      if (answer?.ok) return content;
      if (answer && answer.status < 500 && answer.status !== 429 && answer.status !== 408) throw Object.assign(new Refused(content?.detail || 'Farol refuses it.'), { status: answer.status });
      report(content?.detail ? reason(new Refused(content.detail)) : 'Farol cannot be reached. It is tried again.');
      await pause(wait * (0.5 + Math.random()));
      await online();
    }
  };

  // The outline of a tar: its headers, the text files at the top of the bag, and its end. Each
  // piece has its offset and its length in front, and all are compressed.
  const outline = async (file, run) => {
    const zip = new CompressionStream('gzip'), to = zip.writable.getWriter(), chunks = [];
    let zipped = 0;
    const collected = (async () => {
      for (const from = zip.readable.getReader(); ;) {
        const { done, value } = await from.read();
        if (done) return;
        zipped += value.length;
        chunks.push(value);
      }
    })();
    let at = -1, view = new Uint8Array(0);
    const read = async (from, n) => { // ahead where files are small, and little where they are large
      if (at < 0 || from < at || from + n > at + view.length) {
        const ahead = at < 0 || from - at - view.length < 65536 ? 262144 : 4096;
        view = new Uint8Array(await file.slice(from, from + Math.max(n, ahead)).arrayBuffer());
        at = from;
      }
      return view.subarray(from - at, from - at + n);
    };
    const piece = async (from, until) => {
      until = Math.min(until, file.size);
      for (; from < until; from += MiB) {
        const content = await read(from, Math.min(MiB, until - from)), head = new DataView(new ArrayBuffer(12));
        head.setBigUint64(0, BigInt(from));
        head.setUint32(8, content.length);
        await to.write(new Uint8Array(head.buffer));
        await to.write(content.slice());
        if (zipped > mostOutline) throw new Refused('The list of its files is too large for it to be checked here. It is checked after the upload.');
      }
    };
    const letters = new TextDecoder(), text = (block, from, n) => letters.decode(block.subarray(from, from + n)).split('\0')[0];
    const number = (block, from, n) => {
      if (!(block[from] & 0x80)) return parseInt(text(block, from, n).trim() || '0', 8);
      return block.subarray(from + 1, from + n).reduce((sum, b) => sum * 256 + b, block[from] & 0x7f);
    };
    const whole = (block) => block.length === 512 && number(block, 148, 8) === block.reduce((sum, b, i) => sum + (i >= 148 && i < 156 ? 32 : b), 0);
    const pad = (n) => Math.ceil(n / 512) * 512;
    let name = null, size = null, looked = Date.now();
    for (let pos = 0; ;) {
      run.check();
      const block = await read(pos, 512);
      if (!whole(block)) { await piece(pos, pos + MiB); break; }
      const type = String.fromCharCode(block[156] || 48);
      let length = size ?? number(block, 124, 12), end = pos + 512;
      if ('xgLK'.includes(type)) { // says something of the next entry, or of all
        const more = number(block, 124, 12);
        await piece(pos, end + Math.min(pad(more), 2 * MiB));
        const content = more > MiB ? new Uint8Array(0) : await read(end, more);
        if (type === 'L') name = text(content, 0, more);
        for (let i = 0; type === 'x' && i < content.length;) {
          const n = parseInt(letters.decode(content.subarray(i, i + 20)), 10);
          if (!(n > 0)) break;
          const record = letters.decode(content.subarray(i, i + n - 1)), [key] = record.slice(record.indexOf(' ') + 1).split('=', 1), value = record.slice(record.indexOf('=') + 1);
          if (key === 'path') name = value;
          if (key === 'size') size = parseInt(value, 10);
          i += n;
        }
        pos = end + pad(more);
        continue;
      }
      name ??= (text(block, 257, 5) === 'ustar' && text(block, 345, 155) ? text(block, 345, 155) + '/' : '') + text(block, 0, 100);
      for (let more = type === 'S' && block[482]; more; end += 512) more = (await read(end, 512))[504];
      if ('123456'.includes(type) || type === '0' && name.endsWith('/')) length = 0;
      const path = name.replace(/^\.\//, '').split('/');
      const wanted = '07'.includes(type) && path.length === 2 && path[1].endsWith('.txt');
      await piece(pos, wanted ? end + length : end);
      if (Date.now() - looked > 500) { looked = Date.now(); run.read(pos); }
      pos = end + pad(length);
      name = size = null;
      if (!(pos <= file.size)) break; // Farol finds that it is cut
    }
    await to.close();
    await collected;
    return new Blob(chunks);
  };
  const base64 = (blob) => new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result.split(',')[1] ?? '');
    reader.onerror = () => failed(reader.error);
    reader.readAsDataURL(blob);
  });
  const digest = async (content) => base64(new Blob([await crypto.subtle.digest('SHA-256', content)]));

  // found shows what is right and wrong with a bag.
  const found = (verdict) => {
    const at = $('findings');
    at.replaceChildren();
    for (const [title, list] of [['Errors', verdict.errors], ['Warnings', verdict.warnings]]) {
      if (!list.length) continue;
      const rows = make('table'), head = make('tr'), body = make('tbody'), top = make('thead');
      rows.className = 'rows';
      rows.append(make('caption', title));
      for (const column of ['Code', 'File', 'What is wrong']) { const th = make('th', column); th.scope = 'col'; head.append(th); }
      top.append(head);
      for (const f of list.slice(0, 200)) {
        const row = make('tr');
        for (const [label, text] of [['Code', f.code], ['File', plain(f.path || '')], ['What is wrong', plain(f.message)]]) {
          const td = make('td', text);
          td.dataset.label = label;
          row.append(td);
        }
        body.append(row);
      }
      rows.append(top, body);
      at.append(rows);
      if (list.length > 200) at.append(make('p', 'And ' + (list.length - 200) + ' more.'));
    }
  };

  let run = null;
  const begun = (file) => {
    const me = {
      file, paused: false, replace: false, id: '', requests: new Set(), running: false, turn: 0,
      of: { name: file.name, size: file.size, ...(institution ? { institution: institution.value.trim() } : {}) },
      check() { if (run !== me) throw new Stopped(); },
      read(pos) { $('progress').value = pos / file.size; },
    };
    me.query = '?' + new URLSearchParams({ name: file.name, ...(institution ? { institution: me.of.institution } : {}) });
    return me;
  };
  const stop = () => { if (run) { const was = run; run = null; was.requests.forEach((r) => r.abort()); } };

  const choose = async (file) => {
    stop();
    show('state', true);
    for (const id of ['go', 'replace', 'pause', 'abort', 'item', 'meter']) show(id, false);
    $('findings').replaceChildren();
    $('name').textContent = plain(file.name);
    if (institution && !institution.reportValidity()) { report('Name the institution first, and choose the file again.'); return; }
    if (!file.name.endsWith('.tar')) { report('This is not a tar. Pack the directory of the bag first, from the one above it: tar -cf photographs.tar photographs'); return; }
    if (!file.size) { report('The file is empty.'); return; }
    const me = run = begun(file);
    try {
      report('Reading the list of its files.');
      show('meter', true);
      const content = await base64(await outline(file, me));
      show('meter', false);
      report('Farol checks the bag.');
      const verdict = await ask(me, 'POST', '/check', { ...me.of, outline: content });
      me.check();
      found(verdict);
      if (!verdict.valid) {
        report(verdict.unknown ? 'It is not known whether this bag is valid. Nothing was uploaded.' : 'This bag is not valid: ' + (verdict.errors.length + (verdict.more || 0)) + ' errors. Nothing was uploaded. Correct them, pack the bag again, and choose the new tar.');
        return;
      }
      report('The bag looks valid: ' + verdict.files + ' files, ' + bytes(verdict.bytes) + '. The digests of its files are checked after the upload.');
    } catch (err) {
      if (run !== me) return;
      show('meter', false);
      report((err instanceof Refused ? 'The bag was not checked before the upload. ' : '') + reason(err));
      if (!(err instanceof Refused) || err.status === 404) return;
    }
    show('go', true);
    $('go').focus();
  };

  // opened is an upload of this very file that was begun before; null: there is none.
  const opened = async (me) => {
    const { items } = await ask(me, 'GET', institution ? '?' + new URLSearchParams({ institution: me.of.institution }) : '');
    for (const u of items.filter((u) => u.name === me.file.name).reverse()) {
      let parts;
      try { ({ parts } = await ask(me, 'GET', '/' + encodeURIComponent(u.id) + me.query)); } catch (err) { if (err.status === 404) continue; throw err; }
      const fits = parts.length > 0 && parts.every((p) => p.size === Math.min(me.partSize, me.file.size - (p.number - 1) * me.partSize));
      if (!fits) continue;
      const { number, sha256 } = parts[0], from = (number - 1) * me.partSize;
      if (sha256 && sha256 !== await digest(await me.file.slice(from, from + me.partSize).arrayBuffer())) continue;
      me.id = u.id;
      return new Map(parts.map((p) => [p.number, p.sha256]));
    }
    return null;
  };

  // put sends a part, and says on the way how far it is.
  const put = (me, url, sha256, content, sent) => new Promise((done, failed) => {
    const r = new XMLHttpRequest();
    me.requests.add(r);
    r.upload.onprogress = (e) => sent(e.loaded);
    r.onloadend = () => {
      me.requests.delete(r);
      sent(0);
      if (r.status === 200) done();
      else if (r.status === 404) failed(new Refused('This upload was finished or given up elsewhere. Choose the file again.'));
      else failed(new Error('status ' + r.status));
    };
    r.timeout = 30 * 60000;
    r.open('PUT', url);
    r.setRequestHeader('x-amz-checksum-sha256', sha256);
    r.send(content);
  });

  const figures = (me) => {
    const n = me.done + [...me.under.values()].reduce((a, b) => a + b, 0), now = Date.now();
    me.seen.push([now, n]);
    while (me.seen.length > 2 && now - me.seen[0][0] > 20000) me.seen.shift();
    const [then, before] = me.seen[0], rate = now > then ? Math.max(0, (n - before) * 1000 / (now - then)) : 0;
    $('progress').value = n / me.file.size;
    $('figures').textContent = bytes(n) + ' of ' + bytes(me.file.size) + (rate > 0 && !me.paused ? ', ' + bytes(rate) + ' a second, ' + span((me.file.size - n) / rate) + ' left' : '');
    if (!me.paused && navigator.onLine && now - me.talked > 30000) { me.talked = now; said(Math.floor(100 * n / me.file.size) + ' per cent uploaded.'); }
  };

  const lane = async (me, turn) => { // of an attempt: where one lane fails, the others stop
    for (let number; (number = me.queue.shift());) {
      const from = (number - 1) * me.partSize;
      for (let wait = 1000, failures = 0; ; wait = Math.min(wait * 2, 60000)) {
        me.check();
        while (me.paused) await new Promise((resumed) => me.waiting.push(resumed));
        await online();
        me.check();
        if (me.turn !== turn) throw new Stopped();
        const content = await me.file.slice(from, from + me.partSize).arrayBuffer(), sha256 = await digest(content);
        if (me.sent.get(number) === sha256) { me.done += content.byteLength; break; }
        const { parts } = await ask(me, 'POST', '/' + encodeURIComponent(me.id) + '/parts', { ...me.of, parts: [{ number, sha256 }] });
        try {
          await put(me, parts[0].url, sha256, content, (n) => me.under.set(number, n));
          me.under.delete(number);
          me.done += content.byteLength;
          if (failures) report('Uploading.');
          break;
        } catch (err) {
          if (err instanceof Refused) throw err;
          me.check();
          if (me.turn !== turn) throw new Stopped();
          if (me.paused) { wait = 500; continue; }
          report(navigator.onLine ? 'The receiving bucket does not answer. It is tried again.' + (++failures > 4 ? ' If this does not end, ask the administrator of Farol whether the bucket allows uploads from this page.' : '')
            : 'There is no connection. The upload goes on when it is back.');
          await pause(wait * (0.5 + Math.random()));
        }
      }
    }
  };

  const upload = async () => {
    const me = run;
    if (!me || me.running) return;
    me.running = true;
    show('go', false);
    show('replace', false);
    let ticking = null;
    try {
      report('Looking for an earlier upload of this file.');
      me.partSize = Math.max(16 * MiB, Math.ceil(Math.ceil(me.file.size / 10000) / MiB) * MiB);
      me.sent = await opened(me);
      const resumed = me.sent !== null;
      if (!resumed) {
        const u = await ask(me, 'POST', '', { ...me.of, replace: me.replace });
        me.id = u.id;
        me.partSize = u.part_size;
        me.sent = new Map();
      }
      const count = Math.ceil(me.file.size / me.partSize);
      Object.assign(me, { done: 0, under: new Map(), seen: [], waiting: [], talked: Date.now(), queue: Array.from({ length: count }, (_, i) => i + 1) });
      report(resumed ? 'The upload goes on. Parts that have arrived are compared, and not sent again.' : 'Uploading.');
      for (const id of ['meter', 'pause', 'abort']) show(id, true);
      $('pause').textContent = 'Pause';
      ticking = setInterval(() => figures(me), 500);
      const lanes = Math.max(1, Math.min(4, Math.floor(mostMemory / me.partSize)));
      await Promise.all(Array.from({ length: lanes }, () => lane(me, me.turn)));
      figures(me);
      show('pause', false);
      report('All parts have arrived. The bucket puts them together.');
      const done = await ask(me, 'POST', '/' + encodeURIComponent(me.id) + '/complete', { ...me.of, replace: me.replace });
      me.finished = true;
      show('abort', false);
      follow(me, done);
    } catch (err) {
      if (err instanceof Stopped || run !== me) return;
      show('pause', false);
      report(reason(err));
      if (err.status === 409 && err.message.includes('already')) show('replace', true);
      else show('go', err.status !== undefined);
      me.turn++;
      me.requests.forEach((r) => r.abort());
    } finally {
      clearInterval(ticking);
      me.running = false;
    }
  };

  // follow shows what becomes of the bag, until its item has ended.
  const follow = async (me, done) => {
    const items = '/items?' + new URLSearchParams({ name: done.name }), where = done.item ? '/api/v1/items/' + done.item : '/api/v1' + items + '&limit=1';
    $('item').href = done.item ? '/items/' + done.item : items;
    show('item', true);
    show('meter', false);
    for (let before = ''; run === me;) {
      let item = null;
      try {
        const answer = await fetch(where);
        if (answer.ok) { item = await answer.json(); item = item.items ? item.items[0] : item; }
      } catch { /* it is asked again */ }
      const ended = item && item.status !== 'Pending' && item.status !== 'Started';
      const text = !item ? 'The bag has arrived. Its item shows within a minute.'
        : item.status === 'Success' ? 'The bag is preserved: item ' + item.id + ' has ended with success.'
          : ended ? 'Item ' + item.id + ' is ' + item.status + ' at ' + item.stage + '. Its page says why, and what to do.'
            : 'The bag has arrived. Item ' + item.id + ' is at ' + item.stage + ' (' + item.status + ').';
      if (text !== before) report(text);
      before = text;
      if (ended) return;
      await pause(3000);
    }
  };

  input.addEventListener('change', () => { if (input.files[0]) choose(input.files[0]); });
  form.addEventListener('submit', (e) => e.preventDefault());
  addEventListener('dragover', (e) => { if (e.dataTransfer.types.includes('Files')) e.preventDefault(); });
  addEventListener('drop', (e) => {
    if (!e.dataTransfer.files.length) return;
    e.preventDefault();
    choose(e.dataTransfer.files[0]); // of a directory, the name does not end in .tar
  });
  $('go').addEventListener('click', upload);
  $('replace').addEventListener('click', () => { if (run) { run.replace = true; upload(); } });
  $('pause').addEventListener('click', () => {
    if (!run) return;
    run.paused = !run.paused;
    $('pause').textContent = run.paused ? 'Resume' : 'Pause';
    report(run.paused ? 'Paused. What has arrived stays; you may also close this page, and choose the file again another day.' : 'Uploading.');
    if (run.paused) run.requests.forEach((r) => r.abort());
    else { run.seen = []; run.waiting.splice(0).forEach((resumed) => resumed()); }
  });
  $('abort').addEventListener('click', async () => {
    const me = run;
    if (!me?.id) return;
    stop();
    for (const id of ['pause', 'abort', 'meter']) show(id, false);
    const asked = run = begun(me.file);
    try {
      await ask(asked, 'POST', '/' + encodeURIComponent(me.id) + '/abort', { ...me.of, size: undefined });
      report('The upload was given up, and what had arrived is deleted.');
      show('go', true);
    } catch (err) { if (err instanceof Refused) report(reason(err)); }
  });
  addEventListener('beforeunload', (e) => { if (run?.running && !run.finished) e.preventDefault(); });
})();

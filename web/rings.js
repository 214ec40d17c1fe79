// Draws what /debug/rings says: which slots hold which positions, the write head, what the last step read and wrote.
"use strict";

const Rings = (() => {
  const byId = (id) => document.getElementById(id);
  let state = null;      // the last answer
  let sequence = null;   // the request drawn; it stays when it has ended
  let ended = false;
  let chosen = null;     // index of the layer shown large
  let layerButtons = [];
  const rates = [];      // {time, rate} of the last minute

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const bytes = (n) => {
    for (const unit of ["B", "KB", "MB", "GB"]) {
      if (n < 1000 || unit === "GB") return `${unit === "B" ? n : n.toFixed(n < 10 ? 2 : 1)} ${unit}`;
      n /= 1000;
    }
  };

  // The canvas in CSS pixels, sharp on every screen.
  function prepare(canvas) {
    const scale = window.devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
    }
    const context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    return {context, width, height};
  }

  // The position that a slot of a ring holds, or -1: the newest one before `length` that is congruent to it.
  function positionOf(slot, capacity, length, firstHeld) {
    const newest = length - 1;
    const position = newest - (((newest - slot) % capacity) + capacity) % capacity;
    return position >= firstHeld && position >= 0 ? position : -1;
  }

  function drawRing(canvas, layer, cache, seq, large) {
    const {context: g, width, height} = prepare(canvas);
    const radius = Math.min(width, height) / 2 - (large ? 22 : 3);
    const thickness = large ? radius * 0.3 : radius * 0.42;
    const middle = radius - thickness / 2;
    const [cx, cy] = [width / 2, height / 2];
    const top = -Math.PI / 2;
    const sliding = layer.kind === "sliding";
    const slots = sliding ? layer.capacity : state.context;
    // A segment stands for one slot, or for several where there are more than can be told apart.
    const segments = Math.min(slots, large ? 256 : 64);
    const angle = 2 * Math.PI / segments;
    const gap = segments <= 96 ? angle * 0.12 : 0;
    const ring = color("--ring"), write = color("--write"), empty = color("--empty"), full = color("--full");
    const stepEnd = seq ? seq.step.offset + seq.step.tokens : 0;
    for (let i = 0; i < segments; ++i) {
      const from = Math.floor(i * slots / segments), to = Math.max(from + 1, Math.floor((i + 1) * slots / segments));
      let newest = -1;
      for (let slot = from; seq && slot < to; ++slot) {
        const position = sliding ? positionOf(slot, slots, seq.length, cache.first_held) : (slot < seq.length ? slot : -1);
        newest = Math.max(newest, position);
      }
      g.beginPath();
      g.arc(cx, cy, middle, top + i * angle + gap / 2, top + (i + 1) * angle - gap / 2 + (gap ? 0 : 0.004));
      g.lineWidth = thickness;
      if (newest < 0) {
        g.strokeStyle = empty;
      } else if (newest >= seq.step.offset && newest < stepEnd) {
        g.strokeStyle = write;
      } else if (sliding) {
        const age = (seq.length - newest) / slots;
        g.strokeStyle = `rgb(${ring} / ${Math.max(0.18, 1 - 0.8 * age)})`;
      } else {
        g.strokeStyle = full;
      }
      g.stroke();
    }
    if (!seq) return;
    // The write head: where the next position goes.
    const head = top + 2 * Math.PI * (cache.next_slot % slots) / slots;
    g.fillStyle = write;
    g.beginPath();
    if (large) {
      const tip = radius - thickness - 3;
      g.moveTo(cx + Math.cos(head) * tip, cy + Math.sin(head) * tip);
      g.lineTo(cx + Math.cos(head - 0.12) * (tip - 15), cy + Math.sin(head - 0.12) * (tip - 15));
      g.lineTo(cx + Math.cos(head + 0.12) * (tip - 15), cy + Math.sin(head + 0.12) * (tip - 15));
    } else {
      g.arc(cx + Math.cos(head) * (radius - thickness - 4), cy + Math.sin(head) * (radius - thickness - 4), 2.5, 0, 2 * Math.PI);
    }
    g.fill();
    if (!large) return;
    // What the first query of the last step read, around the outside.
    const readEnd = Math.max(seq.step.offset, cache.read_first);
    const count = Math.min(slots, readEnd - cache.read_first + 1);
    const start = top + 2 * Math.PI * (cache.read_first % slots) / slots;
    g.strokeStyle = color("--read");
    g.lineWidth = 3;
    g.beginPath();
    g.arc(cx, cy, radius + 6, start, start + 2 * Math.PI * count / slots - 0.01);
    g.stroke();
    g.fillStyle = color("--text");
    g.textAlign = "center";
    g.font = "600 20px system-ui, sans-serif";
    g.fillText(`${cache.first_held}–${Math.max(0, seq.length - 1)}`, cx, cy + 2);
    g.font = "12px system-ui, sans-serif";
    g.fillStyle = color("--muted");
    g.fillText("positions held", cx, cy + 20);
    g.fillText("slot 0", cx, cy - radius - 10);
  }

  function describe(layer, cache, seq) {
    if (!seq) return layer.kind === "sliding" ? `A ring of ${layer.capacity} slots, empty.` : "Keeps everything; empty.";
    const wrote = `The last step wrote ${seq.step.tokens} position${seq.step.tokens === 1 ? "" : "s"} from ${seq.step.offset} on`;
    if (layer.kind === "full") return `Keeps every position: ${seq.length} of at most ${state.context}. ${wrote}.`;
    return `A ring of ${layer.capacity} slots holds positions ${cache.first_held} to ${seq.length - 1}. ${wrote}, at slot ` +
      `${cache.write_slot}; its first query read from ${cache.read_first} on. Next: slot ${cache.next_slot}, lap ${Math.floor(seq.length / layer.capacity) + 1}.`;
  }

  function buildLayers() {
    const box = byId("layers");
    box.replaceChildren();
    layerButtons = state.layers.map((layer) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "layer";
      const canvas = document.createElement("canvas");
      canvas.setAttribute("aria-hidden", "true");
      const label = document.createElement("span");
      label.textContent = `${layer.index} ${layer.kind === "sliding" ? "ring" : "full"}`;
      button.append(canvas, label);
      button.addEventListener("click", () => { chosen = layer.index; draw(); });
      box.append(button);
      return button;
    });
  }

  function draw() {
    if (!state) return;
    if (layerButtons.length !== state.layers.length) buildLayers();
    if (chosen === null || chosen >= state.layers.length) chosen = 0;
    const seq = sequence;
    state.layers.forEach((layer, i) => {
      const cache = seq ? seq.layers[i] : null;
      const button = layerButtons[i];
      button.setAttribute("aria-pressed", String(i === chosen));
      button.setAttribute("aria-label", `Layer ${i}, ${layer.kind}. ${describe(layer, cache, seq)}`);
      button.dataset.firstHeld = cache ? cache.first_held : "";
      button.dataset.nextSlot = cache ? cache.next_slot : "";
      drawRing(button.querySelector("canvas"), layer, cache, seq, false);
    });
    const layer = state.layers[chosen];
    const cache = seq ? seq.layers[chosen] : null;
    byId("d-title").textContent = `Layer ${chosen}: ${layer.kind === "sliding" ? `ring, window ${layer.window}` : "full attention"}`;
    byId("d-text").textContent = describe(layer, cache, seq);
    drawRing(byId("big"), layer, cache, seq, true);
    byId("big").setAttribute("aria-label", describe(layer, cache, seq));
    byId("m-length").textContent = seq ? `${seq.length}${ended ? " (ended)" : ""}` : "0";
    byId("m-step").textContent = seq
      ? `${seq.step.tokens} token${seq.step.tokens === 1 ? "" : "s"}, ${state.step.write_first ? "write first" : "read first"}, ${(state.step.seconds * 1000).toFixed(1)} ms`
      : "none yet";
    byId("m-draft").textContent = seq && seq.draft ? `${seq.draft.accepted} of ${seq.draft.proposed}` : "no drafter";
    const held = seq ? seq.kv_bytes : 0, without = seq ? seq.kv_bytes_without_rings : 0;
    const most = Math.max(held, without, 1);
    byId("bar-rings").style.width = `${100 * held / most}%`;
    byId("bar-without").style.width = `${100 * without / most}%`;
    byId("kv-rings").textContent = bytes(held);
    byId("kv-without").textContent = bytes(without);
    byId("layers").dataset.state = JSON.stringify({steps: state.steps, sequence: seq});
    drawPlot();
  }

  function drawPlot() {
    const {context: g, width, height} = prepare(byId("plot"));
    const now = performance.now(), span = 60000;
    const most = Math.max(10, ...rates.map((r) => r.rate));
    g.strokeStyle = color("--line");
    g.fillStyle = color("--muted");
    g.lineWidth = 1;
    g.font = "11px system-ui, sans-serif";
    for (const share of [0, 0.5, 1]) {
      const y = height - 14 - share * (height - 30);
      g.beginPath();
      g.moveTo(0, y);
      g.lineTo(width, y);
      g.stroke();
      if (share > 0) g.fillText(String(Math.round(most * share)), 2, y - 3);
    }
    g.fillText("60 s ago", 2, height - 2);
    g.textAlign = "right";
    g.fillText("now", width - 2, height - 2);
    g.textAlign = "left";
    g.strokeStyle = `rgb(${color("--ring")})`;
    g.lineWidth = 2;
    g.lineJoin = "round";
    g.beginPath();
    rates.forEach((r, i) => {
      const x = width * (1 - (now - r.time) / span), y = height - 14 - r.rate / most * (height - 30);
      if (i === 0) g.moveTo(x, y); else g.lineTo(x, y);
    });
    g.stroke();
    byId("plot").setAttribute("aria-label", `Tokens a second over the last minute, now ${rates.length ? Math.round(rates[rates.length - 1].rate) : 0}`);
  }

  function choose() {
    const select = byId("sequence"), wanted = select.value;
    const ids = state.sequences.map((s) => String(s.request));
    const have = [...select.options].slice(1).map((o) => o.value);
    if (ids.join() !== have.join()) {
      while (select.options.length > 1) select.remove(1);
      for (const id of ids) select.add(new Option(`request ${id}`, id));
      select.value = ids.includes(wanted) ? wanted : "";
    }
    const live = state.sequences.filter((s) => !select.value || String(s.request) === select.value);
    if (live.length > 0) {
      sequence = live[live.length - 1];
      ended = false;
    } else {
      // Nothing runs: what ended last, as it was then.
      sequence = state.last;
      ended = sequence !== null;
    }
  }

  let last = null;
  /// Takes an answer of /debug/rings and draws it.
  function update(answer) {
    const now = performance.now();
    if (last && now > last.time) {
      const rate = 1000 * (answer.generated_tokens - last.tokens) / (now - last.time);
      // A little smoothing: polls and steps do not keep the same time.
      const before = rates.length ? rates[rates.length - 1].rate : rate;
      rates.push({time: now, rate: rate === 0 ? 0 : 0.5 * before + 0.5 * rate});
      while (rates.length && now - rates[0].time > 60000) rates.shift();
      byId("rate").textContent = rates[rates.length - 1].rate.toFixed(rates[rates.length - 1].rate < 10 ? 1 : 0);
    }
    last = {time: now, tokens: answer.generated_tokens};
    state = answer;
    choose();
    draw();
  }

  window.addEventListener("resize", draw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  return {update};
})();

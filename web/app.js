// The conversation: sends it, streams the answer, stops it.
"use strict";

(() => {
  const byId = (id) => document.getElementById(id);
  const log = byId("log"), prompt = byId("prompt"), send = byId("send"), stop = byId("stop"), status = byId("status");
  const messages = [];
  let running = null;  // AbortController of the answer under way
  let polls = 0;

  // Settings stay from visit to visit; the key only as long as the tab.
  const kept = ["temperature", "top_p", "top_k", "min_p", "repeat_penalty", "max_tokens", "seed", "stop_at", "system"];
  for (const id of kept) {
    const stored = localStorage.getItem(`slipring.${id}`);
    if (stored !== null) byId(id).value = stored;
    byId(id).addEventListener("change", () => localStorage.setItem(`slipring.${id}`, byId(id).value));
  }
  byId("key").value = sessionStorage.getItem("slipring.key") || "";
  byId("key").addEventListener("change", () => { sessionStorage.setItem("slipring.key", byId("key").value); connect(); });

  function headers() {
    const key = byId("key").value;
    return {"Content-Type": "application/json", ...(key ? {"Authorization": `Bearer ${key}`} : {})};
  }
  function say(text, isError = false) {
    status.textContent = text;
    status.classList.toggle("error", isError);
  }
  async function problem(response) {
    try {
      return (await response.json()).error.message;
    } catch {
      return `${response.status} ${response.statusText}`;
    }
  }

  async function connect() {
    try {
      const response = await fetch("/v1/models", {headers: headers()});
      if (!response.ok) {
        say(response.status === 401 ? "This server asks for an API key: see Settings." : await problem(response), true);
        if (response.status === 401) byId("settings").open = true;
        return;
      }
      const model = (await response.json()).data[0];
      byId("model").textContent = `${model.id} · ${model.meta.family} · context ${model.meta.context}`;
      document.title = `${model.id} · slipring`;
      byId("mode").value = model.meta.chat ? "chat" : "text";
      byId("mode").options[0].disabled = !model.meta.chat;
      say(model.meta.chat ? "" : "This model has no chat template: it continues your text.");
      poll();
    } catch {
      byId("model").textContent = "not connected";
      say("The server does not answer.", true);
    }
  }

  let pollTimer = 0;
  async function poll() {
    clearTimeout(pollTimer);
    if (!document.hidden) {
      try {
        const response = await fetch("/debug/rings", {headers: headers()});
        if (response.ok) Rings.update(await response.json());
        ++polls;
      } catch { /* the next poll, or the next message, says so */ }
    }
    pollTimer = setTimeout(poll, running ? 120 : 1500);
  }

  function bubble(role, who) {
    const item = document.createElement("li");
    item.className = `message ${role}`;
    const name = document.createElement("span");
    name.className = "who";
    name.textContent = who;
    const body = document.createElement("span");
    body.className = "body";
    item.append(name, body);
    log.append(item);
    item.scrollIntoView({block: "nearest"});
    return {item, body};
  }

  function number(id) {
    const value = byId(id).value.trim();
    return value === "" ? undefined : Number(value);
  }
  function request(text) {
    const fields = {
      stream: true, stream_options: {include_usage: true}, temperature: number("temperature"), top_p: number("top_p"),
      top_k: number("top_k"), min_p: number("min_p"), repeat_penalty: number("repeat_penalty"), max_tokens: number("max_tokens"),
      seed: number("seed"), stop: byId("stop_at").value || undefined,
    };
    if (byId("mode").value === "text") return ["/v1/completions", {...fields, prompt: text}];
    const system = byId("system").value.trim();
    return ["/v1/chat/completions", {...fields, messages: [...(system ? [{role: "system", content: system}] : []), ...messages]}];
  }

  // The data of each server-sent event of a response.
  async function* events(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const {value, done} = await reader.read();
      if (done) return;
      rest += value;
      for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
        const line = rest.slice(0, end);
        rest = rest.slice(end + 2);
        if (line.startsWith("data: ") && line !== "data: [DONE]") yield JSON.parse(line.slice(6));
      }
    }
  }

  async function answer(text) {
    const continues = byId("mode").value === "text";
    const {item, body} = bubble("assistant", continues ? "continued" : "model");
    const message = {role: "assistant", content: ""};
    let thinking = null, finish = "", usage = null, waiting = "", frame = 0;
    // Tokens can come faster than frames: what waits is shown once a frame.
    const show = () => {
      frame = 0;
      if (waiting) body.append(waiting);
      waiting = "";
      if (log.scrollHeight - log.scrollTop - log.clientHeight < 160) log.scrollTop = log.scrollHeight;
    };
    const started = performance.now();
    running = new AbortController();
    send.disabled = true;
    stop.disabled = false;
    say("reading the prompt …");
    poll();
    try {
      const [path, fields] = request(text);
      const response = await fetch(path, {method: "POST", headers: headers(), body: JSON.stringify(fields), signal: running.signal});
      if (!response.ok) throw new Error(await problem(response));
      for await (const event of events(response)) {
        if (event.error) throw new Error(event.error.message);
        if (event.usage) usage = event.usage;
        const choice = event.choices[0];
        if (!choice) continue;
        const delta = choice.delta || {content: choice.text};
        if (delta.reasoning_content) {
          if (!thinking) {
            const details = document.createElement("details");
            const summary = document.createElement("summary");
            summary.textContent = "what it told itself";
            thinking = document.createElement("span");
            details.append(summary, thinking);
            body.before(details);
          }
          thinking.textContent += delta.reasoning_content;
        }
        if (delta.content) {
          message.content += delta.content;
          waiting += delta.content;
          frame = frame || requestAnimationFrame(show);
        }
        for (const call of delta.tool_calls || []) {
          const line = document.createElement("code");
          line.className = "tool";
          line.textContent = `${call.function.name || ""}(${call.function.arguments})`;
          item.append(line);
        }
        if (choice.finish_reason) finish = choice.finish_reason;
        if (status.textContent !== "answering …") say("answering …");
      }
    } catch (error) {
      finish = error.name === "AbortError" ? "stopped" : "error";
      if (finish === "error") {
        item.classList.add("failed");
        waiting += error.message;
        say(error.message, true);
      }
    }
    cancelAnimationFrame(frame);
    show();
    running = null;
    send.disabled = false;
    stop.disabled = true;
    if (message.content && finish !== "error") messages.push(message);
    const end = document.createElement("span");
    end.className = "end";
    const seconds = (performance.now() - started) / 1000;
    end.textContent = finish === "length" ? "cut at the token limit" : finish === "stopped" ? "stopped" : "";
    if (end.textContent) item.append(end);
    if (finish !== "error") {
      say(usage ? `${usage.prompt_tokens} + ${usage.completion_tokens} tokens in ${seconds.toFixed(1)} s` : "stopped");
    }
    poll();
    prompt.focus();
  }

  byId("form").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = prompt.value;
    if (running || text.trim() === "") return;
    bubble("user", "you").body.textContent = text;
    messages.push({role: "user", content: text});
    prompt.value = "";
    answer(text);
  });
  prompt.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      byId("form").requestSubmit();
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && running) running.abort();
  });
  stop.addEventListener("click", () => running && running.abort());
  byId("clear").addEventListener("click", () => {
    if (running) running.abort();
    messages.length = 0;
    log.replaceChildren();
    say("");
    prompt.focus();
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
  connect();
})();

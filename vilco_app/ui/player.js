// One player for the whole page: opens recordings by id, seeks by time of the recording, shows boxes, marks a thing.
(() => {
  "use strict";
  const state = { card: null, parts: [], part: 0, spans: [], opening: null };
  const get = (id) => document.getElementById(id);
  const clock = (s) => {
    s = Math.max(0, Math.floor(s));
    const two = (n) => String(n).padStart(2, "0");
    const minutes = Math.floor(s / 60) % 60, rest = two(s % 60);
    return s < 3600 ? `${minutes}:${rest}` : `${Math.floor(s / 3600)}:${two(minutes)}:${rest}`;
  };

  function say(text) {
    const box = get("v-message");
    box.textContent = text;
    box.hidden = !text;
    get("v-player").classList.add("v-open");
  }

  function now() {
    const video = get("v-video");
    return state.parts.length ? state.parts[state.part].offset + video.currentTime : 0;
  }

  function openPart(index, inner, play) {
    const video = get("v-video");
    const url = state.parts[index].url;
    const go = () => {
      video.currentTime = inner;
      if (play) video.play().catch(() => {});
    };
    state.part = index;
    if (video.dataset.url === url && video.readyState > 0) return go();
    video.dataset.url = url;
    video.src = url;
    video.addEventListener("loadedmetadata", go, { once: true });
    video.load();
  }

  function seek(time, play) {
    let index = 0;
    state.parts.forEach((part, n) => { if (time >= part.offset) index = n; });
    if (state.parts.length) openPart(index, time - state.parts[index].offset, play);
  }

  function show(card) {
    return (state.opening = open(card));
  }

  async function open(card) {
    const same = state.card && state.card.video === card.video && state.parts.length;
    state.card = card;
    drawStrip();
    document.querySelectorAll("#v-result .v-card").forEach((el) => {
      const its = JSON.parse(el.dataset.seek);
      el.classList.toggle("v-on", Boolean(card.rank) && its.rank === card.rank && its.answer === card.answer);
    });
    if (!same) {
      state.parts = [];
      get("v-video").removeAttribute("src");
      get("v-video").dataset.url = "";
      say("Opening");
      const answer = await fetch(`/source/${card.video}`).then((r) => r.json()).catch(() => null);
      if (state.card !== card) return;
      if (!answer || answer.state !== "ready") {
        say(answer ? answer.message : "The server does not answer.");
        if (answer && answer.state === "making") setTimeout(() => { if (state.card === card) show(card); }, 2000);
        return;
      }
      state.parts = answer.parts;
      say("");
    }
    seek(card.start, card.end > card.start);
  }

  function drawStrip() {
    const card = state.card;
    const strip = get("v-strip");
    strip.replaceChildren();
    state.spans = [...document.querySelectorAll("#v-result .v-card")]
      .map((el) => JSON.parse(el.dataset.seek)).filter((c) => c.video === card.video);
    if (card.edited) state.spans.push(card);
    for (const span of state.spans) {
      const mark = document.createElement("button");
      mark.type = "button";
      mark.className = "v-mark" + (span.start === card.start && span.end === card.end ? " v-now" : "");
      mark.style.left = `${(100 * span.start) / card.duration}%`;
      mark.style.width = `${Math.max(0.6, (100 * (span.end - span.start)) / card.duration)}%`;
      mark.title = span.label;
      mark.setAttribute("aria-label", `Show ${mark.title}`);
      mark.addEventListener("click", () => show({ ...span }));
      strip.append(mark);
    }
    const head = document.createElement("i");
    head.id = "v-head";
    strip.append(head);
    const tenths = (s) => `${clock(s)}.${Math.floor(s * 10) % 10}`;
    const label = card.edited ? `${tenths(card.start)} – ${tenths(card.end)}` : card.label || "";
    get("v-caption").textContent = label ? `${card.name}   ${label}` : card.name;
  }

  // The moment shown starts or ends where the player stands now; the other edge moves along if it must.
  function edge(which) {
    const card = { ...state.card, edited: true, label: "as you mark it" }, time = now();
    card[which] = time;
    if (card.end <= card.start) {
      if (which === "start") card.end = Math.min(card.duration, time + 1);
      else card.start = Math.max(0, time - 1);
    }
    state.card = card;
    drawStrip();
  }

  async function post(url, body) {
    const sent = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body || {}) };
    const reply = await fetch(url, sent).catch(() => null);
    if (reply && reply.ok) return reply;
    const told = reply ? await reply.json().catch(() => null) : null;
    const error = told && told.error;
    throw new Error(error ? `${error.message} ${error.remedy}` : "The server does not answer.");
  }

  // A line under the verdict: what was noted, or what went wrong.
  function note(text, bad, answer) {
    const verdict = document.querySelector("#v-result .v-verdict");
    document.querySelectorAll("#v-result .v-note").forEach((el) => el.remove());
    if (!verdict) return;
    const line = document.createElement("div");
    line.className = bad ? "v-note v-bad" : "v-note";
    line.setAttribute("role", bad ? "alert" : "status");
    line.textContent = text;
    if (answer) {
      const back = document.createElement("button");
      back.type = "button";
      back.textContent = "Take it back";
      back.dataset.nothing = "";
      line.dataset.answer = answer;
      line.append(" ", back);
    }
    verdict.after(line);
    line.scrollIntoView({ block: "nearest" });
  }

  async function tell(answer, said) {
    try {
      note((await (await post(`/said/${answer}`, said)).json()).note, false, said.nothing ? "" : answer);
    } catch (error) {
      note(error.message, true);
    }
  }

  async function save(answer, to) {
    try {
      const reply = await post(`/saved/${answer}/${to}`);
      const named = /filename\*=utf-8''([^;]+)|filename="([^"]+)"/i.exec(reply.headers.get("content-disposition") || "");
      const link = document.createElement("a");
      link.href = URL.createObjectURL(await reply.blob());
      link.download = named ? (named[1] ? decodeURIComponent(named[1]) : named[2]) : `answer.${to}`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    } catch (error) {
      note(error.message, true);
    }
  }

  // A question offered to press: typed into the box for the person, and asked.
  function tryOut(question) {
    const box = document.querySelector("#v-text input, #v-text textarea");
    if (!box) return;
    const kind = box.tagName === "INPUT" ? HTMLInputElement : HTMLTextAreaElement;
    Object.getOwnPropertyDescriptor(kind.prototype, "value").set.call(box, question);
    box.dispatchEvent(new Event("input", { bubbles: true }));
    setTimeout(() => get("v-ask-button").click(), 50);
  }

  function pressed(target) {
    const data = target.dataset, card = state.card;
    const answer = (target.closest("[data-answer]") || { dataset: {} }).dataset.answer;
    if ("try" in data) tryOut(data.try);
    else if ("post" in data) {
      target.disabled = true;
      post(data.post).catch((error) => { target.disabled = false; target.title = error.message; });
    } else if ("save" in data) {
      target.disabled = true;
      save(answer, data.save).finally(() => { target.disabled = false; });
    } else if ("absent" in data) tell(answer, { absent: true });
    else if ("nothing" in data) tell(answer, { nothing: true });
    else if ("edge" in data && card && state.parts.length) edge(data.edge);
    else if ("right" in data && card) {
      const edges = card.edited ? { start: card.start, end: card.end } : {};
      tell(card.answer, { rank: card.rank, ...edges });
    }
  }

  // The picture inside the video element: [left, top, width, height] in its own pixels (it is letterboxed).
  function picture() {
    const video = get("v-video");
    const w = video.videoWidth || 16, h = video.videoHeight || 9;
    const scale = Math.min(video.clientWidth / w, video.clientHeight / h);
    return [(video.clientWidth - w * scale) / 2, (video.clientHeight - h * scale) / 2, w * scale, h * scale];
  }

  function place(box, [x1, y1, x2, y2]) {
    const [left, top, width, height] = picture();
    box.style.left = `${left + x1 * width}px`;
    box.style.top = `${top + y1 * height}px`;
    box.style.width = `${(x2 - x1) * width}px`;
    box.style.height = `${(y2 - y1) * height}px`;
  }

  function tick() {
    const card = state.card, live = get("v-live"), head = get("v-head"), say = get("v-say");
    // only a moment of the answer that stands on the page can be corrected
    if (say) say.hidden = !(card && card.answer && document.querySelector(`[data-answer="${card.answer}"]`));
    if (card && head && state.parts.length) {
      const time = now();
      head.style.left = `${(100 * time) / card.duration}%`;
      const boxes = card.boxes || [];
      let best = null;
      for (const b of boxes) if (!best || Math.abs(b[0] - time) < Math.abs(best[0] - time)) best = b;
      live.hidden = !best || Math.abs(best[0] - time) > 0.6;
      if (!live.hidden) place(live, best.slice(1));
    } else if (live) {
      live.hidden = true;
    }
    requestAnimationFrame(tick);
  }

  // Mark a thing: the player pauses, a box is dragged over it, "ID time x1 y1 x2 y2" goes to the page.
  async function mark() {
    await state.opening; // pressed while the video is still being opened
    return new Promise((done) => {
      const video = get("v-video"), sheet = get("v-draw");
      if (!state.card || !state.parts.length) {
        say("Open a video first, then mark the thing in it.");
        return done("");
      }
      video.pause();
      sheet.hidden = false;
      sheet.replaceChildren();
      sheet.dataset.hint = "Drag a box around the thing";
      const leave = document.createElement("button");
      leave.type = "button";
      leave.textContent = "Cancel";
      leave.onpointerdown = (e) => e.stopPropagation();
      leave.onclick = () => end("");
      sheet.append(leave);
      const box = document.createElement("div");
      box.className = "v-box";
      let from = null;
      const at = (e) => {
        const r = video.getBoundingClientRect(), [left, top, width, height] = picture();
        const fit = (v) => Math.min(1, Math.max(0, v));
        return [fit((e.clientX - r.left - left) / width), fit((e.clientY - r.top - top) / height)];
      };
      const corners = (a, b) => [Math.min(a[0], b[0]), Math.min(a[1], b[1]), Math.max(a[0], b[0]), Math.max(a[1], b[1])];
      const end = (value) => {
        sheet.hidden = true;
        sheet.onpointerdown = sheet.onpointermove = sheet.onpointerup = null;
        document.removeEventListener("keydown", escape);
        done(value);
      };
      const escape = (e) => { if (e.key === "Escape") end(""); };
      document.addEventListener("keydown", escape);
      sheet.onpointerdown = (e) => { from = at(e); sheet.append(box); sheet.setPointerCapture(e.pointerId); };
      sheet.onpointermove = (e) => { if (from) place(box, corners(from, at(e))); };
      sheet.onpointerup = (e) => {
        const c = from ? corners(from, at(e)) : null;
        if (!c || c[2] - c[0] < 0.01 || c[3] - c[1] < 0.01) { from = null; return; }
        end(`${state.card.video} ${now().toFixed(3)} ${c.map((v) => v.toFixed(4)).join(" ")}`);
      };
    });
  }

  document.addEventListener("click", (event) => {
    const act = event.target.closest("[data-try], [data-post], [data-save], [data-absent], [data-nothing], [data-edge], [data-right]");
    if (act) return pressed(act);
    const target = event.target.closest("[data-seek]");
    if (!target) return;
    get("v-player").classList.add("v-open");
    show(JSON.parse(target.dataset.seek));
  });

  document.addEventListener("ended", (event) => {
    if (event.target.id === "v-video" && state.part + 1 < state.parts.length) openPart(state.part + 1, 0, true);
  }, true);
  document.addEventListener("error", (event) => {
    if (event.target.id === "v-video" && event.target.getAttribute("src")) say("This file cannot be played here.");
  }, true);

  window.vilco = { mark, show, now };
  requestAnimationFrame(tick);
})();

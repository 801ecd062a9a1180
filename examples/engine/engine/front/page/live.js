// SPDX-License-Identifier: Apache-2.0
// Draws what /events tells. Its data is written as text, never as markup.
"use strict";
const SECONDS = 120;
const NAMESPACE = "http://www.w3.org/2000/svg";
const PARTS = [["control_ms", "purple"], ["compute_ms", "blue"], ["wait_ms", "orange"], ["move_ms", "green"]];
const OF_A_RANK = [["compute", "blue"], ["wait", "orange"], ["move", "green"]];
const RATES = [["prompt_tokens_per_s", "purple dashed"], ["tokens_per_s", "blue"]];
const byId = (id) => document.getElementById(id);
let points = [];
let now = null;
let state = "connecting";
let asked = false;

function number(value) {
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

function add(parent, name, attributes, text) {
  const made = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

function cleared(id) {
  const svg = byId(id);
  svg.replaceChildren();
  const width = svg.clientWidth, height = svg.clientHeight;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  return [svg, width, height];
}

// A round number for the distance of about `count` lines up to `most`.
function tick(most, count) {
  const raw = most / count, ten = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].find((one) => one * ten >= raw) * ten;
}

// Axes of time to the left of now and of a unit, and a function from a point to its place.
function axes(svg, width, height, most, unit) {
  const left = 46, right = 10, top = 16, bottom = 20;
  const step = tick(Math.max(most, 1e-3), 4), end = Math.max(step, Math.ceil(most / step) * step);
  const x = (t) => width - right - (latest() - t) / SECONDS * (width - left - right);
  const y = (value) => height - bottom - value / end * (height - top - bottom);
  for (let value = 0; value <= end * 1.001; value += step) {
    add(svg, "path", {class: "grid", d: `M${left} ${y(value)}H${width - right}`});
    add(svg, "text", {class: "soft", x: left - 6, y: y(value) + 4, "text-anchor": "end"}, +value.toPrecision(3));
  }
  add(svg, "text", {class: "soft", x: left, y: 10}, unit);
  for (let ago = 0; ago <= SECONDS; ago += 30) {
    const label = ago ? `-${ago} s` : "now";
    add(svg, "text", {class: "soft", x: x(latest() - ago), y: height - 4,
      "text-anchor": ago ? (ago === SECONDS ? "start" : "middle") : "end"}, label);
  }
  return [x, y];
}

const latest = () => points.length ? points[points.length - 1].t : 0;
const path = (places) => places.length ? "M" + places.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L") : "";

function drawRates() {
  const [svg, width, height] = cleared("rates");
  const most = Math.max(1, ...points.flatMap((one) => RATES.map(([name]) => one[name])));
  const [x, y] = axes(svg, width, height, most, "tokens/s");
  for (const [name, kind] of RATES)
    add(svg, "path", {class: `line ${kind}`, d: path(points.map((one) => [x(one.t), y(one[name])]))});
}

function drawTimes() {
  const [svg, width, height] = cleared("times");
  const sum = (one) => PARTS.reduce((all, [name]) => all + one[name], 0);
  const [x, y] = axes(svg, width, height, Math.max(1, ...points.map(sum)), "ms a step");
  let below = points.map(() => 0);
  for (const [name, kind] of PARTS) {
    const above = points.map((one, index) => below[index] + one[name]);
    const up = points.map((one, index) => [x(one.t), y(above[index])]);
    const back = points.map((one, index) => [x(one.t), y(below[index])]).reverse();
    if (points.length > 1) add(svg, "path", {class: `on area ${kind}`, d: path([...up, ...back]) + "Z"});
    below = above;
  }
}

// rank = tp + TP * (kvp + KVP * pp): stages from left to right, a row for each KV rank, tensor ranks side by side.
function drawLayout() {
  const [svg, width, height] = cleared("layout");
  const {tensor, pipeline, kv, workers} = now;
  byId("shape").textContent =
    `tensor ${tensor}, pipeline ${pipeline}, KV ${kv}: ${tensor * pipeline * kv} ranks, roster ${now.roster}`;
  const gap = 34, top = 20, bottom = 18, stage = (width - gap * (pipeline - 1)) / pipeline;
  const cellWidth = (stage - 12) / tensor, cellHeight = (height - top - bottom - 12) / kv;
  const byRank = new Map(workers.map((one) => [one.rank, one]));
  for (let pp = 0; pp < pipeline; ++pp) {
    const x = pp * (stage + gap), middle = top + (height - top - bottom) / 2;
    add(svg, "text", {class: "soft", x: x + stage / 2, y: 13, "text-anchor": "middle"}, `stage ${pp}`);
    add(svg, "rect", {class: "stage", x, y: top, width: stage, height: height - top - bottom, rx: 8});
    if (pp) {
      add(svg, "path", {class: "arrow", d: `M${x - gap + 3} ${middle}H${x - 10}`});
      add(svg, "path", {class: "head", d: `M${x - 3} ${middle}l-9 -5v10Z`});
    }
    for (let row = 0; row < kv; ++row)
      for (let column = 0; column < tensor; ++column) {
        const rank = column + tensor * (row + kv * pp);
        drawCell(svg, rank, byRank.get(rank), x + 6 + column * cellWidth + 3, top + 6 + row * cellHeight + 3,
          cellWidth - 6, cellHeight - 6);
      }
  }
  add(svg, "text", {class: "soft", x: 0, y: height - 3},
    "side by side: tensor parallel; one above the other: KV parallel; arrows: pipeline");
}

function drawCell(svg, rank, worker, x, y, width, height) {
  const alive = worker !== undefined && worker.alive;
  const cell = add(svg, "g", {});
  add(cell, "title", {}, worker ? `rank ${rank}: ${worker.identity}` : `rank ${rank}: nobody`);
  add(cell, "rect", {class: alive ? "cell" : "cell dead", x, y, width, height, rx: 5});
  if (!alive) add(cell, "path", {class: "cross", d: `M${x + 5} ${y + 5}l10 10m0 -10l-10 10`});
  const middle = x + width / 2;
  add(cell, "text", {x: middle, y: y + height / 2 + (alive ? 4 : -2), "text-anchor": "middle"},
    width > 60 ? `rank ${rank}` : rank);
  if (!alive) add(cell, "text", {class: "soft", x: middle, y: y + height / 2 + 13, "text-anchor": "middle"},
    worker ? "dead" : "absent");
}

function drawRanks() {
  const [svg, width, height] = cleared("ranks");
  const workers = now.workers, left = 84, right = 58, top = 22, bottom = 22;
  const all = (one) => one.step_ms.compute + one.step_ms.wait + one.step_ms.move;
  const most = Math.max(1e-3, ...workers.map(all)), step = tick(most, 4), end = Math.ceil(most / step) * step;
  const x = (ms) => left + ms / end * (width - left - right);
  let along = left;
  for (const [label, kind] of [["compute", "blue"], ["waiting for a peer", "orange"], ["moving", "green"]]) {
    add(svg, "rect", {class: `on ${kind}`, x: along, y: 3, width: 14, height: 9});
    add(svg, "text", {class: "soft", x: along + 18, y: 12}, label);
    along += 30 + label.length * 6.2;
  }
  for (let ms = 0; ms <= end * 1.001; ms += step) {
    add(svg, "path", {class: "grid", d: `M${x(ms)} ${top}V${height - bottom}`});
    add(svg, "text", {class: "soft", x: x(ms), y: height - 6, "text-anchor": "middle"}, +ms.toPrecision(3));
  }
  add(svg, "text", {class: "soft", x: width, y: 12, "text-anchor": "end"}, "ms a step");
  const row = Math.min(44, (height - top - bottom) / Math.max(1, workers.length));
  workers.forEach((worker, index) => {
    const y = top + index * row, thick = Math.max(3, row * 0.5);
    add(svg, "text", {x: left - 8, y: y + thick / 2 + 6, "text-anchor": "end"},
      `rank ${worker.rank}${worker.alive ? "" : " \u2716"}`);
    let from = 0;
    for (const [part, kind] of OF_A_RANK) {
      add(svg, "rect", {class: `on ${kind}`, x: x(from), y: y + 2, height: thick,
        width: Math.max(0, x(from + worker.step_ms[part]) - x(from))});
      from += worker.step_ms[part];
    }
    add(svg, "text", {class: "soft", x: x(from) + 5, y: y + thick / 2 + 6}, number(from));
    const doing = worker.alive ? worker.waiting : "dead", fits = Math.floor((width - left) / 5.9);
    if (row > 26) add(svg, "text", {class: "soft", x: left, y: y + thick + 12},
      doing.length > fits ? doing.slice(0, fits - 1) + "\u2026" : doing);
  });
}

function drawDeaths() {
  byId("deaths").replaceChildren(...(now.deaths.length ? now.deaths.slice().reverse() : [null]).map((death) => {
    const line = document.createElement("li");
    if (death === null) {
      line.textContent = "Nobody.";
      return line;
    }
    line.className = "dead";
    const time = document.createElement("time");
    time.textContent = new Date(death.at * 1000).toLocaleTimeString([], {hour12: false});
    const whose = `rank ${death.rank}`;
    line.append(time, death.what.startsWith(whose) ? death.what : `${whose}: ${death.what}`);
    return line;
  }));
}

function drawTiles() {
  const say = (id, text) => { byId(id).textContent = text; };
  say("model", `${now.model}, context ${now.context} tokens`);
  say("tokens", number(now.tokens_per_s));
  say("prompt", number(now.prompt_tokens_per_s));
  say("step", number(now.step_ms));
  say("running", now.running);
  say("waiting", now.waiting);
  say("limit", `requests waiting, of ${now.limit}`);
  say("blocks", now.used);
  say("block", `of ${now.blocks} KV blocks`);
  byId("block").title = `${now.block_size} tokens each`;
  byId("queue").style.width = `${Math.min(100, 100 * now.waiting / Math.max(1, now.limit))}%`;
  byId("used").style.width = `${Math.min(100, 100 * now.used / Math.max(1, now.blocks))}%`;
}

function draw() {
  asked = false;
  byId("state").textContent = state;
  byId("state").className = `state ${state}`;
  // The page shows old data.
  document.body.className = state === "unreachable" ? "old" : "";
  document.title = `${state} - Tendon engine`;
  drawRates();
  drawTimes();
  if (now === null) return;
  drawTiles();
  drawLayout();
  drawRanks();
  drawDeaths();
}

function soon() {
  if (!asked) requestAnimationFrame(draw);
  asked = true;
}

const events = new EventSource("/events");
events.addEventListener("history", (event) => { points = JSON.parse(event.data).points; soon(); });
events.addEventListener("status", (event) => {
  now = JSON.parse(event.data);
  state = now.state;
  points.push(now);
  while (points[0].t < now.t - SECONDS) points.shift();
  soon();
});
events.addEventListener("quiet", (event) => { state = JSON.parse(event.data).state; soon(); });
events.onerror = () => { state = "unreachable"; soon(); };
addEventListener("resize", soon);
draw();

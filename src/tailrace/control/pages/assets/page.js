// What HTML alone does not do: questions before an action, plots, and a note when the connection is lost.
"use strict";

// ---- questions ----
document.addEventListener("submit", (event) => {
  const form = event.target;
  const button = event.submitter;
  const asked = button?.dataset.confirm ? button.dataset : form.dataset;
  if (!asked.confirm || form.dataset.confirmed) return;
  event.preventDefault();
  const dialog = document.getElementById("confirm");
  document.getElementById("confirm-text").textContent = asked.confirm;
  document.getElementById("confirm-yes").textContent = asked.yes;
  dialog.returnValue = "no";
  dialog.showModal();
  dialog.addEventListener("close", () => {
    if (dialog.returnValue !== "yes") return;
    form.dataset.confirmed = "yes";
    // a list that came meanwhile has another form in its place
    if (!form.isConnected) { form.hidden = true; document.body.append(form); }
    form.requestSubmit(button);
  }, { once: true });
});

// ---- findings ----
// The check of what was typed comes late: it must not end one that somebody has asked for since.
let typed = 0, asked = 0;
document.addEventListener("input", (event) => { if (event.target.id === "spec") typed = performance.now(); });
document.addEventListener("htmx:confirm", (event) => {
  if (event.target.id.startsWith("check-")) asked = performance.now();
  else if (event.target.id === "spec" && asked > typed) event.preventDefault();
  // nobody looks at a page in the background
  else if (document.hidden && "watch" in event.target.dataset) event.preventDefault();
});

// ---- live parts ----
document.addEventListener("htmx:sseError", () => { document.getElementById("connection").hidden = false; });
document.addEventListener("htmx:sseOpen", () => { document.getElementById("connection").hidden = true; });
// What somebody opened, or is about to use, stays as it is until the next time.
document.addEventListener("htmx:sseBeforeMessage", (event) => {
  const part = event.target;
  const dialog = document.getElementById("confirm");
  if (part.querySelector("details[open]") || (dialog.open && part.querySelector("form"))) event.preventDefault();
});

document.addEventListener("htmx:beforeSwap", (event) => {
  const part = event.detail.target;
  const dialog = document.getElementById("confirm");
  if (part.querySelector("input:checked") || (dialog.open && part.querySelector("form"))) event.detail.shouldSwap = false;
});

// ---- plots ----
const NAMES = { lag: "behind", changes: "changes/s", rows: "rows/s" };

function plots(area) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const drawn = [];
  let span = "hour";

  function clock(_, ticks) {
    const second = ticks.length > 1 && ticks[1] - ticks[0] < 60 ? "2-digit" : undefined;
    return ticks.map((at) => new Date(at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second, hourCycle: "h23" }));
  }

  function draw(place) {
    const lines = place.dataset.lines.split(" ");
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
    const options = {
      width: place.clientWidth, height: 220,
      scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [{ ...axis, values: clock, space: 70 }, { ...axis, size: 60 }],
      series: [{ label: "time", value: (_, at) => at == null ? "–" : new Date(at * 1000).toLocaleTimeString([], { hourCycle: "h23" }) }, ...lines.map((name, i) => ({
        label: NAMES[name], stroke: colour(`--plot-${i + 1}`), width: 2, dash: i ? [6, 3] : undefined,
        spanGaps: false, value: (_, value) => value == null ? "–" : String(Math.round(value * 10) / 10),
      }))],
    };
    const plot = new uPlot(options, [[], ...lines.map(() => [])], place);
    new ResizeObserver(() => plot.setSize({ width: place.clientWidth, height: 220 })).observe(place);
    drawn.push({ place, plot, lines, label: place.getAttribute("aria-label") });
  }

  async function load() {
    const answer = await fetch(`${area.dataset.samples}?span=${span}`, { headers: { Accept: "application/json" } });
    if (!answer.ok) return;
    const samples = await answer.json();
    for (const { place, plot, lines, label } of drawn) {
      plot.setData([samples.at, ...lines.map((name) => samples[name])]);
      const now = lines.map((name) => `${NAMES[name]} ${samples[name].at(-1) ?? "not known"}`).join(", ");
      place.setAttribute("aria-label", `${label}. Now: ${now}`);
    }
  }

  area.querySelectorAll(".plot").forEach(draw);
  for (const button of document.querySelectorAll("[data-span]")) {
    button.addEventListener("click", () => {
      span = button.dataset.span;
      document.querySelectorAll("[data-span]").forEach((one) => one.setAttribute("aria-pressed", String(one === button)));
      load();
    });
  }
  load();
  setInterval(() => { if (!document.hidden) load(); }, 10000);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => location.reload());
}

document.querySelectorAll("[data-samples]").forEach(plots);

// The bar at the lower edge of the window: what can be done with the selected images.

function drawSelectionBar() {
  const bar = find("#selection-bar");
  const images = [...selection];
  const wasHidden = bar.hidden;
  bar.hidden = !images.length;
  document.documentElement.classList.toggle("has-selection", !bar.hidden);
  if (bar.hidden) return;
  if (wasHidden) bar.replaceChildren(...barParts());
  find("#bar-count").textContent = `${formatInteger(images.length)} selected`;
  keepFocus(() => find("#bar-move").replaceWith(moveMenu()));
  bar.querySelectorAll("[data-least]").forEach((node) => (node.disabled = images.length < Number(node.dataset.least)));
}

function barParts() {
  const parts = [make("b", { id: "bar-count" })];
  if (isLive) parts.push(nameForm());
  parts.push(make("select", { id: "bar-move" }));
  if (isLive) {
    parts.push(
      barButton("Same", "These images belong together", () => sayPair("same"), { "data-least": 2, id: "bar-same" }),
      barButton("Different", "These images do not belong together", () => sayPair("different"), {
        "data-least": 2,
        id: "bar-different",
      }),
    );
  }
  parts.push(
    barButton("Not these", "Leave these images out", () => moveSelected("out"), { id: "bar-out" }),
    barButton("Clear", "Select nothing (Escape)", () => setSelection([]), { id: "bar-clear", class: "quiet" }),
  );
  return parts;
}

const barButton = (label, title, onclick, attributes) => button(label, onclick, { title, ...attributes });

function nameForm() {
  const field = make("input", {
    id: "bar-name",
    type: "text",
    maxlength: 80,
    list: "known-names",
    autocomplete: "off",
    placeholder: "Name these…",
    "aria-label": "Name of the selected images",
  });
  const form = make("form", { class: "bar-form" }, field, make("button", { type: "submit", id: "bar-say" }, "Name"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const name = field.value.trim(),
      images = [...selection];
    if (!name || !(await act({ kind: "name", images: rowsOf(images), name }))) return;
    field.value = "";
    announce(`${formatCount(images.length, "image")} named ${safeText(name)}.`);
  });
  return form;
}

/** A menu of places to move to: it works the same with mouse, keyboard and touch. */
function moveMenu() {
  const menu = make("select", { id: "bar-move", "aria-label": "Move the selected images to" });
  menu.append(make("option", { value: "" }, "Move to…"), make("option", { value: "new" }, "New cluster"));
  const targets = currentClusters().filter((cluster) => cluster !== NOT_THESE);
  menu.append(...targets.map((cluster) => make("option", { value: cluster }, clusterLabel(cluster))));
  menu.addEventListener("change", () => {
    if (menu.value !== "") moveSelected(menu.value === "new" ? "new" : Number(menu.value));
  });
  return menu;
}

/** Move the selected images; they stay selected, so that the reader sees where they are. */
async function moveSelected(to) {
  await moveImages([...selection], to);
  const menu = find("#bar-move");
  if (menu) menu.value = "";
}

async function sayPair(kind) {
  const images = [...selection];
  const said = kind === "same" ? "the same" : "different";
  if (await act({ kind, images: rowsOf(images) })) announce(`${formatCount(images.length, "image")} are ${said}.`);
}

// The history: everything that was done, newest first, in words.

function startHistory() {
  const dialog = find("#history");
  find("#history-open").hidden = false;
  find("#history-open").addEventListener("click", () => {
    drawHistory();
    dialog.showModal();
  });
  find("#history-close").addEventListener("click", () => dialog.close());
  find("#history-undo").addEventListener("click", undoEdit);
  find("#history-redo").addEventListener("click", redoEdit);
  on("edited", () => dialog.open && drawHistory());
}

const clockFormat = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** Times come as text or as seconds since 1970. */
function clockText(time) {
  const date = new Date(typeof time === "number" ? 1000 * time : time);
  return Number.isNaN(date.getTime()) ? "" : clockFormat.format(date);
}

function drawHistory() {
  const items = [...store.history].reverse().map(({ text, time }, place) => {
    const number = store.history.length - place;
    return make(
      "li",
      {},
      make("span", { class: "count" }, formatInteger(number)),
      make("bdi", {}, safeText(text)),
      make("time", {}, clockText(time)),
      place ? backButton(number) : null,
    );
  });
  find("#history-list").replaceChildren(...items);
  find("#history-empty").hidden = items.length > 0;
  find("#history-undo").disabled = !store.canUndo;
  find("#history-redo").disabled = !store.canRedo;
}

/** A button that takes back everything after one entry. */
const backButton = (number) =>
  button("Back to here", () => goBackTo(number), {
    class: "link",
    "aria-label": `Take back everything after change ${number}`,
  });

async function goBackTo(number) {
  while (store.history.length > number) if (!(await act({ kind: "undo" }))) return;
  announce(`Back to change ${number}.`);
  find("#history-redo").focus();
}

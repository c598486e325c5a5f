// Keys that work everywhere on the page: Ctrl-Z and Ctrl-Y, Escape, and / for the search. N goes from a selected image
// to the bar with all that can be done with the selection.

/** In a text that the reader has changed, Ctrl-Z belongs to the text; elsewhere it takes back the last change. */
const hasNewText = (node) => isTyping(node) && !node.matches("select") && node.value !== node.defaultValue;

function startKeys() {
  document.addEventListener("keydown", (event) => {
    const command = event.ctrlKey || event.metaKey,
      key = event.key.toLowerCase(),
      typing = isTyping(event.target);
    if (hasNewText(event.target)) return;
    if (command && key === "z" && !event.shiftKey) undoEdit();
    else if (command && (key === "y" || (key === "z" && event.shiftKey))) redoEdit();
    else if (key === "/" && !typing && !command && !event.altKey) find("#search").focus();
    else if (key === "n" && !command && selection.size && event.target.closest(".thumb, #map")) enterBar(event.target);
    else if (key === "escape" && !typing && selection.size && !find("dialog[open]")) setSelection([]);
    else return;
    if (key !== "escape") event.preventDefault();
  });
}

/** Go to the bar; Escape there goes back. */
function enterBar(from) {
  const bar = find("#selection-bar");
  find("#bar-name, #bar-move", bar).focus();
  bar.onkeydown = (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    from.focus();
  };
}

// Keys that work everywhere on the page: Ctrl-Z and Ctrl-Y, Escape, and / for the search.

function startKeys() {
  document.addEventListener("keydown", (event) => {
    if (isTyping(event.target)) return;
    const command = event.ctrlKey || event.metaKey,
      key = event.key.toLowerCase();
    if (command && key === "z" && !event.shiftKey) undoEdit();
    else if (command && (key === "y" || (key === "z" && event.shiftKey))) redoEdit();
    else if (key === "/" && !command && !event.altKey) find("#search").focus();
    else if (key === "escape" && selection.size && !event.defaultPrevented && !find("dialog[open]"))
      setSelection([]);
    else return;
    if (key !== "escape") event.preventDefault();
  });
}

// Exports: the server writes them into the folder of results and says where.

const EXPORTS = [
  ["csv", "Table", "labels.csv: file, cluster, name, confidence"],
  ["folders", "Sorted folders", "one folder for each name, with its pictures"],
  ["coco", "COCO", "a JSON file with images and categories"],
  ["parquet", "Parquet", "the table for pandas, Polars and DuckDB"],
  ["huggingface", "Hugging Face", "a folder that datasets.load_dataset reads"],
];

function startExports() {
  const dialog = find("#export");
  find("#download").hidden = true;
  find("#export-open").hidden = false;
  find("#export-open").addEventListener("click", () => dialog.showModal());
  find("#export-close").addEventListener("click", () => dialog.close());
  find("#export-list").append(...EXPORTS.map(exportItem));
}

function exportItem([kind, label, text]) {
  const node = button(label, () => runExport(kind, node), { id: `export-${kind}` });
  return make("li", {}, node, make("span", { class: "quiet-text" }, text));
}

async function runExport(kind, node) {
  const status = find("#export-status");
  node.disabled = true;
  status.textContent = "Writing…";
  try {
    const { path, files } = await askServer("export", { kind, mode: find("#export-mode").value });
    const written = typeof files === "number" ? `${formatCount(files, "file")} written: ` : "Written: ";
    status.replaceChildren(written, make("bdi", {}, safeText(path)));
  } catch (error) {
    status.textContent = safeText(error.message);
  } finally {
    node.disabled = false;
    node.focus();
  }
}

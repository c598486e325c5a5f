// Near-duplicates side by side: the reader keeps the best of each group, the others are left out.

const DUPLICATES_SHOWN = 30;

function startDuplicates() {
  if (!payload.nDuplicates) return;
  const list = make("div", { id: "duplicates", class: "duplicate-groups" });
  const section = make(
    "section",
    { id: "duplicates-section", "aria-labelledby": "duplicates-heading" },
    make(
      "div",
      { class: "section-head" },
      make("h2", { id: "duplicates-heading" }, "Near-duplicates"),
      make("p", { class: "lead", id: "duplicates-lead" }, "Pictures that are nearly identical. Keep the best of each group."),
    ),
    list,
  );
  find("#clusters-section").after(section);
  whenNear(section, () => {
    fetchDuplicates();
    on("edited", fetchDuplicates);
  });
}

async function fetchDuplicates() {
  const answer = await attempt(() => askServer("duplicates"));
  if (!answer) return;
  const groups = answer.groups.slice(0, DUPLICATES_SHOWN);
  keepFocus(() => find("#duplicates").replaceChildren(...groups.map(duplicateGroup)));
  const count = answer.groups.length;
  find("#duplicates-lead").textContent = count
    ? `${formatCount(count, "group")} of pictures that are nearly identical. Keep the best of each group.` +
      (count > groups.length ? ` The first ${groups.length} are shown.` : "")
    : "No near-duplicates are left.";
}

function duplicateGroup({ keep, images }) {
  const name = `keep-${keep}`;
  const rows = images.map(({ row }) => row);
  const choices = images.map((facts) => duplicateChoice(facts, name, facts.row === keep));
  const group = make("fieldset", { class: "duplicate-group" });
  const keepBest = async () => {
    const row = Number(find("input:checked", group).value);
    const drop = rows.filter((other) => other !== row);
    if (await act({ kind: "keep", row, drop })) announce(`${formatCount(drop.length, "near-duplicate")} left out.`);
  };
  group.append(
    make("legend", { class: "visually-hidden" }, `${images.length} nearly identical pictures`),
    make("div", { class: "duplicate-row" }, choices),
    button("Keep this one", keepBest, { class: "keep", id: `${name}-button` }),
  );
  return group;
}

function duplicateChoice({ row, width, height, bytes }, name, checked) {
  const image = imageOf.get(row);
  const facts = [width && height ? `${width} × ${height}` : null, bytes ? sizeText(bytes) : null].filter(Boolean);
  const input = make("input", { type: "radio", name, value: row, checked });
  const picture = originalPicture(`picture/${row}`, "");
  picture.loading = "lazy";
  return make(
    "label",
    { class: "duplicate" },
    picture,
    make("span", { class: "duplicate-text" }, input, make("bdi", {}, nameOf(image))),
    make("span", { class: "quiet-text" }, facts.join(", ")),
  );
}

function sizeText(bytes) {
  if (bytes < 1000) return `${bytes} bytes`;
  return bytes < 1e6 ? `${(bytes / 1000).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

// The server of a live page. Addresses are relative to that of the page, so that the page knows no host and no port.

/** Ask the server; an answer that is not in order becomes an error with one sentence. */
async function askServer(address, body) {
  const options = body && {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  };
  let answer;
  try {
    answer = await fetch(address, { cache: "no-store", ...options });
  } catch {
    throw new Error("The server does not answer. Start it again with tubal open; everything up to here is saved.");
  }
  const data = await answer.json().catch(() => ({}));
  if (answer.ok) return data;
  throw new Error(data.error || `The server could not do this (${answer.status}).`);
}

/** Show one sentence at the top of the page, or take it away. */
function showProblem(text) {
  const box = find("#problem");
  box.hidden = !text;
  find("#problem-text").textContent = text ? safeText(text) : "";
}

/** Run something that asks the server, and show its error in the page. Returns undefined then. */
async function attempt(action) {
  try {
    const result = await action();
    showProblem("");
    return result;
  } catch (error) {
    showProblem(error.message);
    return undefined;
  }
}

/** Listen to events of the server: an object of functions by the name of the event. */
function listenToServer(listeners) {
  const source = new EventSource("events");
  for (const [name, listener] of Object.entries(listeners)) {
    source.addEventListener(name, (event) => listener(JSON.parse(event.data || "{}")));
  }
  return source;
}

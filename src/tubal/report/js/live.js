// Changes on a live page: the server makes them, and they are on disk before it answers.

/** The state as the server sends it, with its arrays unpacked. */
const unpackState = (state) => ({
  ...state,
  labels: Int32Array.from(unpack(state.labels)),
  confidence: unpack(state.confidence),
});

async function actOnServer(change) {
  const state = await attempt(() => askServer("act", change));
  if (!state) return false;
  showState(unpackState(state));
  return true;
}

/** Another page, or the command line, has changed something: fetch the state unless this page knows it already. */
async function catchUp(revision) {
  await acting;
  if (revision <= store.revision) return;
  const state = await attempt(() => askServer("state"));
  if (state && state.revision !== store.revision) showState(unpackState(state));
}

let lostTimer = null,
  wasConnected = false;

function startLive() {
  const source = listenToServer({ state: ({ revision }) => catchUp(revision) });
  // A short break is normal; only a longer one is worth a sentence.
  source.addEventListener("error", () => {
    lostTimer ||= setTimeout(() => {
      showProblem("The server has stopped. Start it again with tubal open; everything up to here is saved.");
    }, 4000);
  });
  source.addEventListener("open", () => {
    clearTimeout(lostTimer);
    lostTimer = null;
    showProblem("");
    // After a break something may have changed.
    if (wasConnected) catchUp(Infinity);
    wasConnected = true;
  });
  find("#problem-close").addEventListener("click", () => showProblem(""));
}

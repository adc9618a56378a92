// Exchanges the link's secret, which stands behind the "#", for a cookie, and leads on to the page. Without one, a browser
// that is logged in is led on too: its strict cookie did not come with a link from elsewhere, and does from here.

const secret = location.hash.slice(1);
if (location.hash) history.replaceState(null, "", location.pathname + location.search);

function goOn() {
  const here = location.pathname === "/login" ? "/" : location.pathname + location.search;
  // Once: a browser that sends its cookie with a request of ours but not when it opens the page would go round for ever.
  if (sessionStorage.getItem("led-on") === here) return false;
  sessionStorage.setItem("led-on", here);
  location.replace(here);
  return true;
}

async function enter() {
  let says = "You are not logged in here.";
  if (secret) {
    const answer = await fetch("/login", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ link: secret }),
    });
    if (answer.ok) {
      sessionStorage.removeItem("led-on");
      location.replace("/");
      return;
    }
    const error = await answer.json();
    says = "You were not let in: " + error.message + ".";
  }
  const me = await fetch("/api/me");
  if (me.ok && goOn()) return;
  if (me.ok) says = "You are logged in, but this browser does not say so when it opens the page. Load it again.";
  show(says);
}

function show(says) {
  sessionStorage.removeItem("led-on");
  document.getElementById("what").textContent = says;
  document.getElementById("how").hidden = false;
}

enter().catch(() => show("Handler does not answer. It may have ended; the command below starts it."));

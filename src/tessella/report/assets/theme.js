// Light or dark: as the system has it, until a reader presses the button.

const system = window.matchMedia("(prefers-color-scheme: dark)");
const themed = []; // what is to be drawn again when the colours change

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : system.matches;
}

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  const button = document.getElementById("theme");
  button.textContent = isDark() ? "Light" : "Dark";
  button.setAttribute("aria-label", `Show this page in ${isDark() ? "light" : "dark"} colours`);
  for (const draw of themed) draw();
}

// A page that is not allowed to keep things, such as one inside another, starts as the system has it.
function remembered(change) {
  try {
    return change(window.localStorage);
  } catch {
    return null;
  }
}

system.addEventListener("change", () => setTheme(null));
document.getElementById("theme").addEventListener("click", () => {
  const theme = isDark() ? "light" : "dark";
  remembered((store) => store.setItem("tessella-theme", theme));
  setTheme(theme);
});
{
  const before = remembered((store) => store.getItem("tessella-theme"));
  setTheme(before === "dark" || before === "light" ? before : null);
}

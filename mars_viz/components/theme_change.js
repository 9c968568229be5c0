// Says that the page has another theme than the script drew it for: Streamlit changes its own colours and runs no script.

let asked = null; // what the script was last told, so that it is told once, whatever it draws then

export default function ({ data: [drawn], setTriggerValue }) {
  const page = document.querySelector("[data-testid=stApp]");
  const look = () => {
    const shown = getComputedStyle(page).colorScheme;
    if (shown === drawn) asked = null;
    else if (shown !== asked) setTriggerValue("changed", asked = shown);
  };
  const changes = new MutationObserver(look);
  changes.observe(page, { attributes: true, attributeFilter: ["class"] });
  look();
  return () => changes.disconnect();
}

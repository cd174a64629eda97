// Cards that move by pointer: the place where one is left is sent as the button of that place would send it.
function listCards(card) {
  return [...card.parentElement.children].filter((other) => other.dataset.path);
}

function findTarget(card, y) {
  const others = listCards(card).filter((other) => other !== card);
  const after = others.find((other) => {
    const box = other.getBoundingClientRect();
    return y < box.top + box.height / 2;
  });
  return { after, last: others.at(-1) };
}

function unmark(card) {
  for (const other of listCards(card)) delete other.dataset.drop;
}

function mark(card, y) {
  unmark(card);
  const { after, last } = findTarget(card, y);
  if (after) after.dataset.drop = "before";
  else if (last) last.dataset.drop = "after";
}

function send(card, y) {
  const { after, last } = findTarget(card, y);
  const place = Number(card.dataset.place);
  const beside = Number((after ?? last)?.dataset.place ?? place);
  const gap = after ? beside : beside + 1;
  const to = gap > place ? gap - 1 : gap;
  if (to === place) return;
  const form = document.getElementById("arrange");
  const field = document.createElement("input");
  field.type = "hidden";
  field.name = "do";
  field.value = `move ${card.dataset.path} ${to}`;
  form.append(field);
  form.submit();
}

for (const handle of document.querySelectorAll(".handle")) {
  const card = handle.closest("[data-path]");
  let isMoved = false;
  handle.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    event.preventDefault();
    handle.setPointerCapture(event.pointerId);
    card.dataset.dragged = "";
    isMoved = false;
  });
  handle.addEventListener("pointermove", (event) => {
    if (card.dataset.dragged === undefined) return;
    isMoved = true;
    mark(card, event.clientY);
  });
  const end = (event, isDone) => {
    if (card.dataset.dragged === undefined) return;
    delete card.dataset.dragged;
    unmark(card);
    if (isDone && isMoved) send(card, event.clientY);
  };
  handle.addEventListener("pointerup", (event) => end(event, true));
  handle.addEventListener("pointercancel", (event) => end(event, false));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") end(event, false);
  });
}

// The fields of all tabs that hold something, so that secrets which a person typed can be masked.
async (page) => {
  const arg = ARGUMENT;
  const collect = COLLECT;
  return { fields: await collect(page.context().pages().slice(0, arg.tabs).flatMap((p) => p.frames())) };
}

// Acts on the page, if it is still the one that was looked at: since then another tab may have become the current one, in
// which the same references stand for other elements. What is typed key by key goes on while the focus is in its field.
async (page) => {
  const arg = ARGUMENT;
  if (page.handlerTab !== arg.tab || page.url() !== arg.url)
    return { moved: true };
  const does = arg.args;
  const patience = { timeout: 5000 };
  const at = (ref) => page.locator('aria-ref=' + ref);
  const typeKeys = async (field, text) => {
    const inField = () => field.evaluate((e) => {
      const takes = e instanceof HTMLInputElement || e instanceof HTMLTextAreaElement || e instanceof HTMLElement && e.isContentEditable;
      const root = Node.prototype.getRootNode.call(e);
      return takes && root.activeElement === e && Element.prototype.matches.call(e, ':focus');
    }, null, { world: 'utility', ...patience });
    await field.focus(patience);
    for (const key of text) {
      if (!await inField())
        throw new Error('the focus is not in this field, or it is none that text is typed into: the rest was not typed');
      await page.keyboard.type(key);
    }
  };
  switch (arg.tool) {
    case 'browser_click': {
      const how = { button: does.button, modifiers: does.modifiers, ...patience };
      await (does.doubleClick ? at(does.target).dblclick(how) : at(does.target).click(how));
      break;
    }
    case 'browser_hover':
      await at(does.target).hover(patience);
      break;
    case 'browser_drag':
      await at(does.startTarget).dragTo(at(does.endTarget), patience);
      break;
    case 'browser_type':
      await (does.slowly ? typeKeys(at(does.target), does.text) : at(does.target).fill(does.text, patience));
      if (does.submit)
        await at(does.target).press('Enter', patience);
      break;
    case 'browser_fill_form':
      for (const { target, type, value } of does.fields) {
        if (type === 'checkbox' || type === 'radio')
          await at(target).setChecked(value === 'true', patience);
        else if (type === 'combobox')
          await at(target).selectOption({ label: value }, patience);
        else
          await at(target).fill(value, patience);
      }
      break;
    case 'browser_select_option':
      await at(does.target).selectOption(does.values, patience);
      break;
    case 'browser_press_key':
      await page.keyboard.press(does.key);
      break;
    default:
      throw new Error('there is no such action');
  }
  return {};
}

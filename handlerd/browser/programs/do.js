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
      const plain = ['', 'none', undefined].includes(getComputedStyle(e).webkitTextSecurity);
      return takes && plain && root.activeElement === e && Element.prototype.matches.call(e, ':focus');
    }, null, { world: 'utility', ...patience });
    await field.focus(patience);
    for (const key of text) {
      if (!await inField())
        throw new Error('the focus is not in this field, or it is none that text is typed into: the rest was not typed');
      await page.keyboard.type(key);
    }
  };
  const fill = async (field, text) => {
    // A field may become one for a password when it takes the focus.
    await field.focus(patience);
    if (await field.evaluate((e) => !['', 'none', undefined].includes(getComputedStyle(e).webkitTextSecurity), null, { world: 'utility', ...patience }))
      throw new Error('it hides what it holds since it has the focus, as fields for passwords do: nothing was typed into it');
    await field.fill(text, patience);
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
      await (does.slowly ? typeKeys(at(does.target), does.text) : fill(at(does.target), does.text));
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
          await fill(at(target), value);
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
